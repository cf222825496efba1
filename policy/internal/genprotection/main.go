// Command genprotection writes the tables of docs/reference/protected-files.md from the presets,
// so that what is documented is what is protected. It is run by go generate in
// the policy package.
package main

import (
	"flag"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("genprotection: ")
	file := flag.String("o", "../docs/reference/protected-files.md", "the file whose tables are rewritten")
	flag.Parse()
	old, err := os.ReadFile(*file)
	if err != nil {
		log.Fatal(err)
	}
	text, err := fill(string(old))
	if err != nil {
		log.Fatalf("%s: %v", *file, err)
	}
	if err := os.WriteFile(*file, []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

// Command genschema writes the JSON schema of policy files. It is run by go
// generate in the policy package, so that the product itself does not link a
// schema library.
package main

import (
	"flag"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("genschema: ")
	out := flag.String("o", "schema.json", "the file to write")
	flag.Parse()
	text, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, text, 0o644); err != nil {
		log.Fatal(err)
	}
}

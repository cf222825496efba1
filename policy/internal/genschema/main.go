// Command genschema writes the JSON schema of policy files, and the table of their keys
// in docs/reference/policy-keys.md. It is run by go generate in the policy package, so that the
// product itself does not link a schema library.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("genschema: ")
	out := flag.String("o", "schema.json", "the file to write")
	document := flag.String("doc", "../docs/reference/policy-keys.md", "the file whose table of keys is rewritten")
	flag.Parse()
	if err := write(*out, *document); err != nil {
		log.Fatal(err)
	}
}

func write(schema, document string) error {
	text, err := generate()
	if err != nil {
		return err
	}
	if err := os.WriteFile(schema, text, 0o644); err != nil {
		return err
	}
	old, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	filled, err := fillReference(string(old))
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	return os.WriteFile(document, []byte(filled), 0o644)
}

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cloche-dev/cloche/approval"
	"github.com/cloche-dev/cloche/policy"
)

// frontMatter is what a document says about its tools, in fenced blocks before
// anything else:
//
//	```cloche
//	sandbox: true
//	network: false
//	```
//	```tools
//	approve: [write]
//	```
type frontMatter struct {
	Policy *policy.Document
	Tools  approval.Choices
	// SHA256 is of the whole document, for the audit log.
	SHA256 string
}

const fence = "```"

// readFrontMatter reads the blocks at the top of a document. A policy of it is an
// ordinary one: "sandbox: false" is its shorthand, a list adds to the user's.
func readFrontMatter(document string) (*frontMatter, error) {
	front := &frontMatter{}
	if document == "" {
		return front, nil
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	folder, err := filepath.Abs(filepath.Dir(document))
	if err != nil {
		return nil, err
	}
	front.SHA256 = fmt.Sprintf("%x", sha256.Sum256(text))
	blocks, err := fencedBlocks(document, string(text))
	if err != nil {
		return nil, err
	}
	if block, ok := blocks["cloche"]; ok {
		if front.Policy, err = policy.ParseIn(document, folder, []byte(block)); err != nil {
			return nil, err
		}
	}
	choices := yaml.NewDecoder(strings.NewReader(blocks["tools"]))
	choices.KnownFields(true) // a misspelt "deny" must not be passed over
	if err := choices.Decode(&front.Tools); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: tools: %w", document, err)
	}
	return front, nil
}

// fencedBlocks returns the blocks by their language. Each begins with as many empty
// lines as come before it, so that errors name the line of the document.
func fencedBlocks(document, text string) (map[string]string, error) {
	blocks := map[string]string{}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" {
			continue
		}
		language, ok := strings.CutPrefix(line, fence)
		if !ok {
			break // the conversation begins
		}
		start := i + 1
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != fence; i++ {
		}
		if i == len(lines) {
			return nil, fmt.Errorf("%s:%d: the block has no end; close it with %s", document, start, fence)
		}
		if _, twice := blocks[language]; twice {
			return nil, fmt.Errorf("%s:%d: there are two blocks %q", document, start, language)
		}
		blocks[language] = strings.Repeat("\n", start) + strings.Join(lines[start:i], "\n") + "\n"
	}
	return blocks, nil
}

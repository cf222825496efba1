package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A licenseFile is one text that comes with a module.
type licenseFile struct {
	name, text string
	ids        []string // of SPDX; empty for a notice
}

var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// readLicenses returns the texts at the top of a module.
func readLicenses(folder string) ([]licenseFile, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var found []licenseFile
	known := false
	for _, e := range entries {
		if e.IsDir() || !licenseName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		ids := spdx(string(text))
		known = known || len(ids) > 0
		found = append(found, licenseFile{name: e.Name(), text: string(text), ids: ids})
	}
	if !known {
		return nil, fmt.Errorf("%s has no licence that is known; look at it, and teach spdx its name", folder)
	}
	return found, nil
}

// spdx recognises the licences that modules of this kind have, by sentences that
// only they contain. A text may hold two.
func spdx(text string) (ids []string) {
	flat := strings.Join(strings.Fields(text), " ")
	has := func(s string) bool { return strings.Contains(flat, s) }
	if has("Apache License") && has("Version 2.0") {
		ids = append(ids, "Apache-2.0")
	}
	if has("Permission is hereby granted, free of charge") {
		ids = append(ids, "MIT")
	}
	switch {
	case !has("Redistribution and use in source and binary forms"):
	case has("Neither the name"):
		ids = append(ids, "BSD-3-Clause")
	default:
		ids = append(ids, "BSD-2-Clause")
	}
	return ids
}

// licenseText is what accompanies the programs.
func (inv *inventory) licenseText() string {
	var b strings.Builder
	fmt.Fprintln(&b, "cloche is licensed under the Apache License 2.0. Its programs contain the Go standard\nlibrary and the modules below, each under the licence that follows its name.")
	add := func(name, version string, files []licenseFile) {
		for _, l := range files {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("=", 80), name, version, l.name, strings.TrimRight(l.text, "\n"))
		}
	}
	add("Go", inv.toolkit, inv.goLicenses)
	for _, m := range inv.modules {
		add(m.path, m.version, m.licenses)
	}
	return b.String()
}

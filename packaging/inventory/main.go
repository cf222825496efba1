// Command inventory says what is inside the programs of a release: the modules that
// the Go toolchain recorded in them, as a CycloneDX document, and their licences as
// one text, which has to accompany the programs.
//
//	inventory -version v1.2.3 -sbom out.cdx.json -licenses out.txt PROGRAM…
//
// The same programs give the same bytes: the time is SOURCE_DATE_EPOCH, and there
// is no random serial number.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "", "the version of the release")
	sbom := flag.String("sbom", "", "the CycloneDX document to write")
	texts := flag.String("licenses", "", "the text of all licences to write")
	flag.Parse()
	if err := run(*version, *sbom, *texts, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

func run(version, sbom, texts string, programs []string) error {
	if version == "" || len(programs) == 0 {
		return errors.New("name the version with -version, and the programs to look into")
	}
	made, err := buildTime()
	if err != nil {
		return err
	}
	inv, err := look(programs)
	if err != nil {
		return err
	}
	if err := inv.findLicenses(); err != nil {
		return err
	}
	document, err := json.MarshalIndent(inv.document(version, made), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(sbom, append(document, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(texts, []byte(inv.licenseText()), 0o644)
}

// buildTime is the time that a reproducible build has.
func buildTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q; set it to the seconds of the commit's time", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// An inventory is what the programs are made of.
type inventory struct {
	programs []program
	modules  []module // sorted, without repetitions
	toolkit  string   // the Go version
	// goLicenses are those of the standard library.
	goLicenses []licenseFile
}

// A program is one command, for all platforms that it was built for.
type program struct {
	name    string
	main    string // the path of its module
	modules []string
}

type module struct {
	path, version, sum string
	licenses           []licenseFile
}

func (m *module) ref() string { return "pkg:golang/" + m.path + "@" + m.version }

// look reads what the toolchain recorded.
func look(programs []string) (*inventory, error) {
	inv := &inventory{}
	for _, file := range programs {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		inv.toolkit = info.GoVersion
		inv.add(info)
	}
	slices.SortFunc(inv.modules, func(a, b module) int { return strings.Compare(a.ref(), b.ref()) })
	for i := range inv.programs {
		slices.Sort(inv.programs[i].modules)
	}
	return inv, nil
}

func (inv *inventory) add(info *buildinfo.BuildInfo) {
	name := filepath.Base(info.Path)
	i := slices.IndexFunc(inv.programs, func(p program) bool { return p.name == name })
	if i < 0 {
		i = len(inv.programs)
		inv.programs = append(inv.programs, program{name: name, main: info.Main.Path})
	}
	p := &inv.programs[i]
	for _, dep := range info.Deps {
		m := used(dep)
		if !slices.ContainsFunc(inv.modules, func(o module) bool { return o.ref() == m.ref() }) {
			inv.modules = append(inv.modules, m)
		}
		if !slices.Contains(p.modules, m.ref()) {
			p.modules = append(p.modules, m.ref())
		}
	}
}

// used is the module that was linked: a replaced one is not.
func used(dep *debug.Module) module {
	if dep.Replace != nil {
		dep = dep.Replace
	}
	return module{path: dep.Path, version: dep.Version, sum: dep.Sum}
}

// findLicenses reads the licences from the module cache. A module without one must
// not be given away, so it is an error.
func (inv *inventory) findLicenses() error {
	out, err := exec.Command("go", "mod", "download", "-json").Output()
	if err != nil {
		return fmt.Errorf("go mod download: %w", err)
	}
	folders := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); err != nil {
			return err
		}
		folders[m.Path+"@"+m.Version] = m.Dir
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	if inv.goLicenses, err = readLicenses(strings.TrimSpace(string(root))); err != nil {
		return err
	}
	for i := range inv.modules {
		m := &inv.modules[i]
		folder, ok := folders[m.path+"@"+m.version]
		if !ok {
			return fmt.Errorf("%s %s is in a program and not in go.mod; build the programs from this tree", m.path, m.version)
		}
		if m.licenses, err = readLicenses(folder); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return nil
}

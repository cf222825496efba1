package main

import (
	"slices"
	"strings"
	"time"
)

// The parts of CycloneDX 1.5 that are used here.
type (
	bom struct {
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string          `json:"type"`
		Ref        string          `json:"bom-ref"`
		Name       string          `json:"name"`
		Version    string          `json:"version"`
		PURL       string          `json:"purl,omitempty"`
		Licenses   []licenseChoice `json:"licenses,omitempty"`
		Properties []property      `json:"properties,omitempty"`
	}
	licenseChoice struct {
		License licenseID `json:"license"`
	}
	licenseID struct {
		ID string `json:"id"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// ownLicense is cloche's.
var ownLicense = []licenseChoice{{licenseID{"Apache-2.0"}}}

// document is the inventory in the form that scanners read.
func (inv *inventory) document(version string, made time.Time) bom {
	main := inv.programs[0].main
	release := component{Type: "application", Ref: "release", Name: "cloche", Version: version, PURL: "pkg:golang/" + main + "@" + version, Licenses: ownLicense}
	d := bom{Format: "CycloneDX", SpecVersion: "1.5", Version: 1, Metadata: metadata{made.Format(time.RFC3339), release}}
	std := component{Type: "library", Name: "std", Version: strings.TrimPrefix(inv.toolkit, "go"), Licenses: []licenseChoice{{licenseID{"BSD-3-Clause"}}}}
	std.PURL = "pkg:golang/std@" + std.Version
	std.Ref = std.PURL
	whole := dependency{Ref: release.Ref}
	for _, p := range inv.programs {
		ref := "program:" + p.name
		d.Components = append(d.Components, component{Type: "application", Ref: ref, Name: p.name, Version: version, Licenses: ownLicense})
		d.Dependencies = append(d.Dependencies, dependency{ref, append(slices.Clone(p.modules), std.Ref)})
		whole.DependsOn = append(whole.DependsOn, ref)
	}
	d.Components = append(d.Components, std)
	for i := range inv.modules {
		d.Components = append(d.Components, inv.modules[i].component())
	}
	d.Dependencies = append(d.Dependencies, whole)
	return d
}

func (m *module) component() component {
	c := component{Type: "library", Ref: m.ref(), Name: m.path, Version: m.version, PURL: m.ref(), Properties: []property{{"go:sum", m.sum}}}
	for _, l := range m.licenses {
		for _, id := range l.ids {
			if choice := (licenseChoice{licenseID{id}}); !slices.Contains(c.Licenses, choice) {
				c.Licenses = append(c.Licenses, choice)
			}
		}
	}
	return c
}

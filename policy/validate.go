package policy

import (
	"encoding"
	"errors"
	"fmt"
	"slices"
)

// An InvalidError says what is wrong with one field of a policy.
type InvalidError struct {
	// Field is the field's name in Go, for example "Paths[2].Path".
	Field string
	// Origin is where the value comes from, if that is known.
	Origin  Origin
	Message string
	// Fix says what to write instead, if that is known.
	Fix string
}

// Error returns "policy: FIELD: MESSAGE (ORIGIN); FIX".
func (e *InvalidError) Error() string {
	s := "policy: " + e.Field + ": " + e.Message
	if !e.Origin.IsZero() {
		s += " (" + e.Origin.String() + ")"
	}
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Validate reports all that is wrong with a policy, each as an
// [*InvalidError], joined: empty and relative paths, unknown values, bad hosts
// and ports, and rules of one source that contradict each other. Rules of
// different sources never do: there the higher layer or the stricter rule wins.
func (p Policy) Validate() error {
	v := &validator{errs: slices.Clone(p.errs)}
	v.enums(p)
	v.paths(p)
	v.exempt(p)
	v.places(p)
	v.network(p)
	v.bus(p)
	v.env(p)
	v.limits(p)
	v.tests(p)
	return errors.Join(v.errs...)
}

type validator struct{ errs []error }

func (v *validator) fail(field string, o Origin, err error) {
	if err == nil {
		return
	}
	e := &InvalidError{Field: field, Origin: o, Message: err.Error()}
	var f *fault
	if errors.As(err, &f) {
		e.Message, e.Fix = f.message, f.fix
	}
	v.errs = append(v.errs, e)
}

func (v *validator) enums(p Policy) {
	for _, e := range []struct {
		field  string
		value  encoding.TextMarshaler
		origin Origin
	}{
		{"Reads", p.Reads, p.ReadsOrigin},
		{"Tmp", p.Tmp, p.TmpOrigin},
		{"Network.Mode", p.Network.Mode, p.Network.Origin},
		{"Network.Link", p.Network.Link, p.Network.LinkOrigin},
		{"Env.Mode", p.Env.Mode, p.Env.Origin},
		{"Require", p.Require, Origin{}},
		{"Denials", p.Denials, p.DenialsOrigin},
		{"Backend.Fallback", p.Backend.Fallback, p.Backend.Origin},
	} {
		_, err := e.value.MarshalText()
		v.fail(e.field, e.origin, err)
	}
}

// placed is where one source wrote a path.
type placed struct {
	path   string
	layer  Layer
	source string
}

func (v *validator) paths(p Policy) {
	first := map[placed]int{}
	for i, r := range p.Paths {
		if r.Origin.Layer == LayerPreset && (r.Access == Hidden || r.Access == Read && r.Protect) {
			continue // the long lists of the presets were checked when they were read
		}
		field := fmt.Sprintf("Paths[%d]", i)
		_, err := r.Access.MarshalText()
		v.fail(field+".Access", r.Origin, err)
		if r.Protect && r.Access != Read {
			v.fail(field+".Protect", r.Origin, faultf("give it the access Read", "a protected path has the access %s", r.Access))
		}
		if r.Found {
			v.found(field, r)
			continue
		}
		if !v.path(field+".Path", r.Path, r.Origin, pathUse{globs: true}) {
			continue
		}
		key := placed{samePath(r.Path), r.Origin.Layer, r.Origin.Source}
		j, twice := first[key]
		if !twice {
			first[key] = i
		} else if contradicts(p.Paths[j], r) {
			v.fail(field+".Path", r.Origin, faultf("keep one of them", "%q is %s here and %s in Paths[%d]", r.Path, r.Access, p.Paths[j].Access, j))
		}
	}
}

// found checks a rule about the files that a search finds.
func (v *validator) found(field string, r PathRule) {
	if r.Access != Hidden {
		v.fail(field+".Found", r.Origin, faultf("give it the access Hidden", "a rule about files that are found has the access %s", r.Access))
	}
	v.fail(field+".Path", r.Origin, checkFound(r.Path))
}

func (v *validator) exempt(p Policy) {
	for i, e := range p.Exempt {
		field := fmt.Sprintf("Exempt[%d].Folder", i)
		if IsFolderName(e.Folder) {
			v.fail(field, e.Origin, checkFolderName(e.Folder))
		} else {
			v.path(field, e.Folder, e.Origin, pathUse{})
		}
	}
}

// contradicts reports whether two rules for one path exclude each other.
func contradicts(a, b PathRule) bool {
	if a.Protect != b.Protect {
		return a.Access == Write || b.Access == Write
	}
	return a.Access != b.Access
}

func (v *validator) path(field, p string, o Origin, use pathUse) bool {
	_, err := use.settle("", p)
	if relative, formErr := checkForm(p); formErr == nil && relative {
		err = faultf("make it absolute with filepath.Abs", "%q is relative", p)
	}
	v.fail(field, o, err)
	return err == nil
}

func (v *validator) places(p Policy) {
	for i, b := range p.Binds {
		v.path(fmt.Sprintf("Binds[%d].Source", i), b.Source, b.Origin, pathUse{})
		if b.Target != "" {
			v.path(fmt.Sprintf("Binds[%d].Target", i), b.Target, b.Origin, pathUse{})
		}
	}
	for i, s := range p.Persist {
		v.path(fmt.Sprintf("Persist[%d].Path", i), s.Path, s.Origin, pathUse{})
	}
	for i, s := range p.Sockets {
		v.socket(fmt.Sprintf("Sockets[%d].Path", i), s)
	}
	if p.Home.Value != "" {
		v.path("Home.Value", p.Home.Value, p.Home.Origin, pathUse{})
	}
	if p.Remap != "" {
		v.fail("Remap", p.RemapOrigin, checkRemap(p.Remap))
	}
	if p.Backend.BwrapPath != "" {
		v.path("Backend.BwrapPath", p.Backend.BwrapPath, p.Backend.Origin, pathUse{})
	}
}

func (v *validator) env(p Policy) {
	for i, e := range p.Env.Pass {
		v.fail(fmt.Sprintf("Env.Pass[%d]", i), e.Origin, checkPass(e.Name))
	}
	for i, e := range p.Env.Set {
		v.fail(fmt.Sprintf("Env.Set[%d]", i), e.Origin, checkVariable(e.Name, e.Value))
	}
}

func (v *validator) limits(p Policy) {
	for _, name := range limitNames {
		if n := p.Limits.value(name); n < Unlimited {
			v.fail("Limits."+name, p.Limits.Origin[name], faultf("use Unlimited to take the limit away", "%d is below zero", n))
		}
	}
}

func (v *validator) tests(p Policy) {
	for i, t := range p.Tests {
		if !slices.Contains([]string{"read", "write", "exec", "connect"}, t.Action) {
			v.fail(fmt.Sprintf("Tests[%d].Action", i), t.Origin, faultf("use read, write, exec or connect", "%q is not an action", t.Action))
		}
	}
}

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// commandDocument returns the flags as a policy document, so that they are checked like
// files and show up as origins. It returns nil if there are no flags. Relative paths
// start at base, the working folder.
func (s *sessionFlags) commandDocument(base string) (*policy.Document, error) {
	if len(s.typed) == 0 {
		return nil, nil
	}
	doc, err := policy.ParseIn("command line", base, nil)
	if err != nil {
		return nil, err
	}
	for _, t := range s.typed {
		if err := t.spec.put(doc, t.value, t.source()); err != nil {
			return nil, fmt.Errorf("%s: %w", t.source(), err)
		}
	}
	return doc, nil
}

// An applyFunc puts the value of a flag into a document. The source is the flag as typed.
type applyFunc func(doc *policy.Document, value, source string) error

// put puts the value of the flag into a document.
func (s *flagSpec) put(doc *policy.Document, value, source string) error {
	if s.apply != nil {
		return s.apply(doc, value, source)
	}
	return doc.Set(s.field, value, source)
}

func applyPreset(doc *policy.Document, value, source string) error {
	var errs []error
	for name := range strings.SplitSeq(value, ",") {
		errs = append(errs, doc.Set("presets", strings.TrimSpace(name), source))
	}
	return errors.Join(errs...)
}

// applyNet reads a mode, or "user:LINK".
func applyNet(doc *policy.Document, value, source string) error {
	mode, link, linked := strings.Cut(value, ":")
	if err := doc.Set("network.mode", mode, source); err != nil || !linked {
		return err
	}
	if mode != policy.NetworkUser.String() {
		return fmt.Errorf("only the mode user has a link, and this is %s; write user:%s, or the mode alone", mode, link)
	}
	return doc.Set("network.link", link, source)
}

func applyEnv(doc *policy.Document, value, source string) error {
	name, text, isSet := strings.Cut(value, "=")
	if name == "" {
		return errors.New("the name of the variable is missing; write NAME or NAME=VALUE")
	}
	if !isSet {
		return doc.Set("env.pass", name, source)
	}
	return doc.Set("env.set."+name, text, source)
}

func applyBestEffort(doc *policy.Document, value, source string) error {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return err
	}
	strength := policy.Strict
	if on {
		strength = policy.BestEffort
	}
	return doc.Set("require", strength.String(), source)
}

// applyBus shows the session bus; "true" is the flag without names.
func applyBus(doc *policy.Document, value, source string) error {
	if on, err := strconv.ParseBool(value); err == nil {
		return doc.Set("bus.enabled", strconv.FormatBool(on), source)
	}
	for name := range strings.SplitSeq(value, ",") {
		if name == "" {
			return errors.New("a name is empty; write --bus=org.freedesktop.Notifications")
		}
		if err := doc.Set("bus.talk", name, source); err != nil {
			return err
		}
	}
	return nil
}

// agentFlag grants the socket of an agent.
func agentFlag(name string) applyFunc {
	return func(doc *policy.Document, value, source string) error {
		on, err := strconv.ParseBool(value)
		if err == nil && on {
			return doc.Set("sockets", name, source)
		}
		return err
	}
}

// bare reports whether the flag may be written without a value.
func (s *flagSpec) bare() bool { return s.placeholder == "" || strings.HasPrefix(s.placeholder, "[=") }

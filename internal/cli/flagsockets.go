package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// bare reports whether the flag may stand without a value.
func (s *flagSpec) bare() bool { return s.placeholder == "" || strings.HasPrefix(s.placeholder, "[=") }

// bareSource is such a flag as typed.
func (s *flagSpec) bareSource(value string) string {
	if s.placeholder == "" || value == "true" {
		return "--" + s.name
	}
	return "--" + s.name + "=" + value
}

// applyBus shows the session bus; "true" is the flag without names.
func applyBus(b *documentBuilder, value string) error {
	if b.doc.Bus == nil {
		b.doc.Bus = &policy.BusSection{}
	}
	if on, err := strconv.ParseBool(value); err == nil {
		b.doc.Bus.Enabled = &on
		b.from("bus.enabled")
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		if name == "" {
			return fmt.Errorf("a name is empty; write --bus=org.freedesktop.Notifications")
		}
		b.doc.Bus.Talk = append(b.doc.Bus.Talk, name)
		b.fromItem("bus.talk", len(b.doc.Bus.Talk))
	}
	b.from("bus")
	return nil
}

// agentFlag grants the socket of an agent.
func agentFlag(name string) func(*documentBuilder, string) error {
	return func(b *documentBuilder, value string) error {
		on, err := strconv.ParseBool(value)
		if err == nil && on {
			return applySocket(b, name)
		}
		return err
	}
}

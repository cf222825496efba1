package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// A documentBuilder makes a policy document of flags, so that they are judged
// by the same rules as files and show up as origins.
type documentBuilder struct {
	doc    *policy.Document
	source string // of the flag that is being applied
}

func newDocumentBuilder(name, base string) *documentBuilder {
	return &documentBuilder{doc: &policy.Document{Name: name, Base: base}}
}

// commandDocument returns the flags as a document, nil if there are none.
// Relative paths start at base, the working folder.
func (s *sessionFlags) commandDocument(base string) (*policy.Document, error) {
	if len(s.typed) == 0 {
		return nil, nil
	}
	b := newDocumentBuilder("command line", base)
	for _, t := range s.typed {
		b.source = t.source()
		if err := t.spec.apply(b, t.value); err != nil {
			return nil, fmt.Errorf("%s: %w", b.source, err)
		}
	}
	return b.doc, nil
}

// from notes that a field comes from the flag that is being applied.
func (b *documentBuilder) from(field string) { b.doc.SetSource(field, b.source) }

// fromItem is from for the last of n entries of a list.
func (b *documentBuilder) fromItem(list string, n int) {
	b.from(list + "[" + strconv.Itoa(n-1) + "]")
}

func applyPreset(b *documentBuilder, value string) error {
	for name := range strings.SplitSeq(value, ",") {
		b.doc.Presets = append(b.doc.Presets, strings.TrimSpace(name))
		b.fromItem("presets", len(b.doc.Presets))
	}
	return nil
}

func pathFlag(list string) func(*documentBuilder, string) error {
	return func(b *documentBuilder, value string) error {
		if b.doc.Paths == nil {
			b.doc.Paths = &policy.PathsSection{}
		}
		to := map[string]*[]policy.PathEntry{
			"read": &b.doc.Paths.Read, "write": &b.doc.Paths.Write, "hide": &b.doc.Paths.Hide, "protect": &b.doc.Paths.Protect,
		}[list]
		*to = append(*to, policy.ParsePath(value))
		b.fromItem("paths."+list, len(*to))
		return nil
	}
}

func applyBind(b *documentBuilder, value string) error {
	bind, err := policy.ParseBind(value)
	b.doc.Binds = append(b.doc.Binds, bind)
	b.fromItem("binds", len(b.doc.Binds))
	return err
}

func applyPersist(b *documentBuilder, value string) error {
	b.doc.Persist = append(b.doc.Persist, value)
	b.fromItem("persist", len(b.doc.Persist))
	return nil
}

func applyRemap(b *documentBuilder, value string) error {
	b.doc.Remap = &value
	b.from("remap")
	return nil
}

func applyTmp(b *documentBuilder, value string) error {
	b.doc.Tmp = new(policy.Tmp)
	b.from("tmp")
	return b.doc.Tmp.UnmarshalText([]byte(value))
}

func applyDenials(b *documentBuilder, value string) error {
	b.doc.Denials = new(policy.Recording)
	b.from("denials")
	return b.doc.Denials.UnmarshalText([]byte(value))
}

func (b *documentBuilder) network() *policy.NetworkSection {
	if b.doc.Network == nil {
		b.doc.Network = &policy.NetworkSection{}
	}
	return b.doc.Network
}

func applyNet(b *documentBuilder, value string) error {
	n := b.network()
	mode, link, err := policy.ParseNetwork(value)
	n.Mode = &mode
	b.from("network.mode")
	if link != nil {
		n.Link = link
		b.from("network.link")
	}
	return err
}

func applyAllow(b *documentBuilder, value string) error {
	n := b.network()
	host, err := policy.ParseHost(value)
	n.Allow = append(n.Allow, host)
	b.fromItem("network.allow", len(n.Allow))
	// The mode that an allow list implies comes from the list.
	b.from("network.allow")
	return err
}

func applyDeny(b *documentBuilder, value string) error {
	n := b.network()
	host, err := policy.ParseHost(value)
	n.Deny = append(n.Deny, host)
	b.fromItem("network.deny", len(n.Deny))
	return err
}

func applyPublish(b *documentBuilder, value string) error {
	n := b.network()
	port, err := policy.ParsePublish(value)
	n.Publish = append(n.Publish, port)
	b.fromItem("network.publish", len(n.Publish))
	return err
}

func applyForward(b *documentBuilder, value string) error {
	n := b.network()
	port, err := policy.ParseForward(value)
	n.Forward = append(n.Forward, port)
	b.fromItem("network.forward", len(n.Forward))
	return err
}

func applySocket(b *documentBuilder, value string) error {
	b.doc.Sockets = append(b.doc.Sockets, policy.ParseSocket(value))
	b.fromItem("sockets", len(b.doc.Sockets))
	return nil
}

func (b *documentBuilder) env() *policy.EnvSection {
	if b.doc.Env == nil {
		b.doc.Env = &policy.EnvSection{}
	}
	return b.doc.Env
}

func applyEnv(b *documentBuilder, value string) error {
	e := b.env()
	name, text, set := strings.Cut(value, "=")
	if name == "" {
		return fmt.Errorf("the name of the variable is missing; write NAME or NAME=VALUE")
	}
	if !set {
		e.Pass = append(e.Pass, name)
		b.fromItem("env.pass", len(e.Pass))
		return nil
	}
	if e.Set == nil {
		e.Set = map[string]string{}
	}
	e.Set[name] = text
	b.from("env.set." + name)
	return nil
}

func applyEnvPolicy(b *documentBuilder, value string) error {
	e := b.env()
	e.Policy = new(policy.EnvMode)
	b.from("env.policy")
	return e.Policy.UnmarshalText([]byte(value))
}

func limitFlag(name string) func(*documentBuilder, string) error {
	return func(b *documentBuilder, value string) error {
		if b.doc.Limits == nil {
			b.doc.Limits = &policy.LimitsSection{}
		}
		b.from("limits." + name)
		return setLimit(b.doc.Limits, name, []byte(value))
	}
}

func setLimit(l *policy.LimitsSection, name string, text []byte) error {
	switch name {
	case "time":
		l.Time = new(policy.Duration)
		return l.Time.UnmarshalText(text)
	case "output":
		l.Output = new(policy.Size)
		return l.Output.UnmarshalText(text)
	case "memory":
		l.Memory = new(policy.Size)
		return l.Memory.UnmarshalText(text)
	case "processes":
		l.Processes = new(policy.Count)
		return l.Processes.UnmarshalText(text)
	case "open_files":
		l.OpenFiles = new(policy.Count)
		return l.OpenFiles.UnmarshalText(text)
	case "file_size":
		l.FileSize = new(policy.Size)
		return l.FileSize.UnmarshalText(text)
	}
	return fmt.Errorf("there is no limit %q", name)
}

func applyBackend(b *documentBuilder, value string) error {
	b.doc.Backend = &policy.BackendSection{Name: &value}
	b.from("backend.name")
	return nil
}

func applyFallback(b *documentBuilder, value string) error {
	b.doc.Fallback = new(policy.Fallback)
	b.from("fallback")
	return b.doc.Fallback.UnmarshalText([]byte(value))
}

func applyBestEffort(b *documentBuilder, value string) error {
	on, err := strconv.ParseBool(value)
	strength := policy.Strict
	if on {
		strength = policy.BestEffort
	}
	b.doc.Require = &strength
	b.from("require")
	return err
}

package policy

import (
	"reflect"
	"strings"
	"testing"
)

// A9: what a file says about the bus.
func TestBusSection(t *testing.T) {
	p, _ := mustMerge(t, Layered{Layer: LayerUser, Doc: mustParse(t, "f", `
bus:
  see: [org.freedesktop.*]
  talk: [org.freedesktop.Notifications, "org.mpris.MediaPlayer2.*"]
  own: [org.example.App]
  call: ["org.freedesktop.portal.Desktop=org.freedesktop.portal.Settings.Read@/org/freedesktop/portal/desktop", "org.example.A=*", "org.example.B=*@/a/*"]
  broadcast: ["org.example.A=org.example.A.*"]
`)})
	if !p.Bus.Enabled || p.Bus.Origin.Line != 2 {
		t.Errorf("the bus is %+v", p.Bus)
	}
	var got []string
	for _, r := range p.Bus.Rules {
		got = append(got, string(r.Access)+" "+r.String())
		if r.Origin.Line == 0 {
			t.Errorf("%v has no origin", r)
		}
	}
	want := []string{"see org.freedesktop.*", "talk org.freedesktop.Notifications", "talk org.mpris.MediaPlayer2.*", "own org.example.App",
		"call org.freedesktop.portal.Desktop=org.freedesktop.portal.Settings.Read@/org/freedesktop/portal/desktop", "call org.example.A=*",
		"call org.example.B=*@/a/*", "broadcast org.example.A=org.example.A.*"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	c := p.Clone()
	c.Bus.Rules[0].Name = "changed"
	if p.Bus.Rules[0].Name == "changed" {
		t.Error("a clone shares the rules")
	}
}

// A9: names and rules that cannot be meant are errors that say what to write.
func TestBusErrors(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"word", "bus: on", `f:1:6: bus: "on" is neither true nor false; write true, false or {talk: [NAME]}`},
		{"list", "bus: [org.a.B]", `f:1:6: bus: must be true, false or {talk: […], see: …, own: …, call: …, broadcast: …}, not a list`},
		{"off with names", "bus: {enabled: false, talk: [org.a.B]}", `f:1:16: bus.enabled: names have no meaning where there is no bus; remove the names, or enabled: false`},
		{"everything", `bus: {talk: ["*"]}`, `has a * that is not at its end, after a dot`},
		{"star inside", `bus: {talk: ["org.*.B"]}`, `has a * that is not at its end, after a dot`},
		{"unique name", `bus: {talk: [":1.5"]}`, `is the number of one connection, not a name`},
		{"one element", `bus: {talk: [notify]}`, `is not a name on the bus`},
		{"digit", `bus: {talk: [org.1a]}`, `is not a name on the bus`},
		{"option", `bus: {talk: ["--own=a.b"]}`, `takes none of`},
		{"line break", "bus: {talk: [\"org.a\\n.b\"]}", `is not a name on the bus`},
		{"too long", "bus: {talk: [org." + strings.Repeat("a", 255) + "]}", `is not a name on the bus`},
		{"the bus itself", "bus: {talk: [org.freedesktop.DBus]}", `the bus itself needs no rule`},
		{"rule for talk", "bus: {talk: [org.a.B=*]}", `has a rule, which talk takes none of`},
		{"method alone", `bus: {call: ["org.a.B=Method"]}`, `has no interface`},
		{"path", `bus: {call: ["org.a.B=*@a"]}`, `is not the path of an object`},
		{"wildcard on systemd", `bus: {talk: ["org.freedesktop.*"]}`, `would reach org.freedesktop.systemd1, which starts programs outside of any sandbox; list the names that are needed`},
		{"wildcard that is the name", `bus: {talk: ["org.freedesktop.systemd1.*"]}`, `would reach org.freedesktop.systemd1`},
		{"wildcard on all", `bus: {own: ["org.*"]}`, `would reach org.freedesktop.systemd1`},
		{"wildcard on a wallet", `bus: {call: ["org.kde.*=*"]}`, `would reach org.kde.kwalletd`},
		{"wildcard in the portals", `bus: {talk: ["org.freedesktop.portal.*"]}`, `would reach org.freedesktop.portal`},
		{"wildcard below a portal", `bus: {broadcast: ["org.freedesktop.impl.portal.desktop.*"]}`, `would reach org.freedesktop.impl.portal`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("f", []byte(tt.text))
			if err == nil {
				t.Fatalf("%s parses", tt.text)
			}
			if got := errorsOf(t, err)[0].Error(); !strings.Contains(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A9: a dangerous name is granted by itself only.
func TestGuardedBusNames(t *testing.T) {
	for _, g := range guardedNames {
		name := strings.TrimSuffix(g.name, ".")
		if name != g.name {
			name = g.name + "X"
		}
		if (BusRule{Name: name}).Guarded() != g.why {
			t.Errorf("%s is not guarded", name)
		}
		if err := checkBusName("talk", name); err != nil {
			t.Errorf("%s cannot be granted by its name: %v", name, err)
		}
		elements := strings.Split(name, ".")
		for n := 1; n <= len(elements); n++ {
			wild := strings.Join(elements[:n], ".") + ".*"
			for _, a := range []string{"talk", "own", "call", "broadcast"} {
				if checkBusName(a, wild) == nil {
					t.Errorf("%s %s reaches %s", a, wild, name)
				}
			}
			if err := checkBusName("see", wild); err != nil {
				t.Errorf("see %s: %v", wild, err)
			}
		}
	}
	for _, name := range []string{"org.freedesktop.systemd1x", "org.freedesktop.Notifications", "org.freedesktop.portals", "org"} {
		if why := (BusRule{Name: name}).Guarded(); why != "" {
			t.Errorf("%s is guarded: it %s", name, why)
		}
	}
}

// F7 A9: an untrusted file gets no bus, and may take it away.
func TestUntrustedBus(t *testing.T) {
	user := Layered{Layer: LayerUser, Doc: mustParse(t, "user", "bus: {talk: [org.a.B]}")}
	project := func(text string) Layered {
		return Layered{Layer: LayerProject, Untrusted: true, Doc: mustParse(t, "project", text)}
	}
	p, ignored := mustMerge(t, user, project("bus: {enabled: true, talk: [org.c.D], own: [org.e.F]}"))
	if len(p.Bus.Rules) != 1 || p.Bus.Rules[0].Name != "org.a.B" {
		t.Errorf("the bus is %+v", p.Bus)
	}
	if texts := ignoredTexts(ignored); !reflect.DeepEqual(texts, []string{"bus talk org.c.D", "bus own org.e.F"}) {
		t.Errorf("ignored: %q", texts)
	}
	if p, ignored = mustMerge(t, project("bus: {talk: [org.c.D]}")); p.Bus.Enabled || len(p.Bus.Rules) > 0 || len(ignored) != 1 {
		t.Errorf("an untrusted file opens the bus: %+v, %v", p.Bus, ignored)
	}
	if p, ignored = mustMerge(t, project("bus: true")); p.Bus.Enabled || len(ignored) != 1 {
		t.Errorf("an untrusted file opens the bus: %+v, %v", p.Bus, ignored)
	}
	if p, _ = mustMerge(t, user, project("bus: false")); p.Bus.Enabled || len(p.Bus.Rules) > 0 {
		t.Errorf("an untrusted file cannot close the bus: %+v", p.Bus)
	}
}

// C2: the forms of a socket.
func TestSocketForms(t *testing.T) {
	d, err := ParseIn("f", "/base", []byte(`sockets: [/run/a.sock, "@name", "?@name with * and ?", ssh-agent, "?gpg-agent", docker.sock, ./ssh-agent, "./@x"]`))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := mustMerge(t, Layered{Layer: LayerUser, Doc: d})
	var got []string
	for _, s := range p.Sockets {
		text := s.Path
		if s.Optional {
			text += " optional"
		}
		if s.Abstract() {
			text += " abstract"
		}
		if s.Agent() {
			text += " agent"
		}
		got = append(got, text)
	}
	want := []string{"/run/a.sock", "@name abstract", "@name with * and ? optional abstract", "ssh-agent agent", "gpg-agent optional agent", "/base/docker.sock", "/base/ssh-agent", "/base/@x"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		`sockets: ["@"]`:        "the name of the abstract socket is empty",
		`sockets: ["@a\0b"]`:    "holds a NUL byte",
		`sockets: ["/a*"]`:      "globs are not allowed here",
		`sockets: [ssh-agents]`: "is relative",
		`sockets: ["@` + strings.Repeat("x", 108) + `"]`: "at most 107 bytes, and this 108",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/show"
	"github.com/cloche-dev/cloche/policy"
)

// defaultAsk tells an agent how to get more access.
const defaultAsk = "Ask the person you work for; they can allow it with the option that the refusal names."

// summaryNames is how many paths or hosts of one kind a summary names. It is limited because a
// summary is part of a prompt.
const summaryNames = 20

// Summary describes in a few sentences what the plan allows, for the prompt of an agent: what
// it can read and write, the network, the bus and other sockets, and how to ask for more. ask
// is the sentence about asking; if it is empty, a default for cloche's commands is used.
func (p *Plan) Summary(ask string) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("You work in a sandbox. Commands start in %s.", show.Visible(p.Inside))
	p.sumPaths(say)
	say("Network: %s.", p.sumNetwork())
	p.sumSockets(say)
	if t := p.Timeout(); t > 0 {
		say("A command is ended after %s.", t)
	}
	if ask == "" {
		ask = defaultAsk
	}
	say("Everything else is refused, and the refusal says by which rule. Do not try to get around it. %s", ask)
	return b.String()
}

func (p *Plan) sumPaths(say func(string, ...any)) {
	var writable, private, readable, hidden []string
	for i := range p.Paths {
		switch e := &p.Paths[i]; {
		case e.Access == policy.Write && e.Content == Host:
			writable = append(writable, e.Path)
		case e.Access == policy.Write && e.Content == Empty:
			private = append(private, e.Path)
		case e.Access == policy.Read && e.Content == Host:
			readable = append(readable, e.Path)
		case e.Access == policy.Hidden:
			hidden = append(hidden, e.Path)
		}
	}
	say("Writable: %s.", p.names(writable, "nothing"))
	if p.Review != nil {
		say("What you write there, except in persisted folders, is kept aside: the person you work for looks at it, and applies or discards it.")
	}
	if len(private) > 0 {
		say("Writable, empty at first and gone afterwards: %s.", p.names(private, ""))
	}
	if p.Lookup("/").Access == policy.Hidden {
		say("Readable: what is writable, and %s; nothing else is visible.", p.names(readable, "nothing"))
	} else {
		say("Readable: the whole machine as far as the user may read it, but for %s.", p.names(hidden, "nothing"))
	}
	var patterns []string
	for _, g := range p.Globs {
		if g.Access == policy.Hidden {
			patterns = append(patterns, g.Pattern)
		}
	}
	if len(patterns) > 0 {
		say("Hidden wherever they are: %s.", p.names(patterns, ""))
	}
	if slices.ContainsFunc(p.Globs, func(g Glob) bool { return g.Access == policy.Read }) {
		say("Not to be changed or made, even in writable folders: files that programs outside run or obey by themselves, such as git hooks and settings, shell start-up files, and settings of editors and agents.")
	}
}

func (p *Plan) sumNetwork() string {
	n := &p.Network
	var s string
	switch n.Mode {
	case policy.NetworkHost:
		return "the machine's own, with nothing judged"
	case policy.NetworkUser:
		s = "only " + hostNames(n.Allow, "nothing")
		if len(n.Deny) > 0 {
			s += ", and never " + hostNames(n.Deny, "")
		}
	default:
		s = "none; programs inside reach each other on the loopback"
	}
	if len(n.Forward) > 0 {
		s += "; of the machine's loopback the ports " + portNames(n.Forward)
	}
	if len(n.Publish) > 0 {
		s += "; servers on the ports " + portNames(n.Publish) + " can be reached from outside"
	}
	return s
}

func (p *Plan) sumSockets(say func(string, ...any)) {
	if p.Bus != nil {
		var rules []string
		for _, r := range p.Bus.Rules {
			rules = append(rules, r.String())
		}
		say("Session bus: %s.", p.names(rules, "nobody on it can be talked to"))
	}
	var sockets []string
	for _, s := range p.Sockets {
		name := s.Path
		if name == "" {
			name = s.Source
		}
		sockets = append(sockets, name)
	}
	if len(sockets) > 0 {
		say("Sockets of the machine: %s.", p.names(sockets, ""))
	}
}

func hostNames(hosts []HostPort, none string) string {
	var list []string
	for _, h := range hosts {
		list = append(list, h.String())
	}
	return joinNames(list, none)
}

func portNames(ports []Port) string {
	var list []string
	for _, p := range ports {
		list = append(list, fmt.Sprint(p.Inside))
	}
	return joinNames(list, "")
}

// names joins paths. Those in the workspace come first, because they matter most.
func (p *Plan) names(list []string, none string) string {
	slices.SortStableFunc(list, func(a, b string) int { return p.rank(a) - p.rank(b) })
	return joinNames(list, none)
}

func (p *Plan) rank(path string) int {
	if path == p.Inside || strings.HasPrefix(path, p.Inside+"/") {
		return 0
	}
	return 1
}

func joinNames(list []string, none string) string {
	if len(list) == 0 {
		return none
	}
	more := ""
	if n := len(list) - summaryNames; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
		list = list[:summaryNames]
	}
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = show.Visible(s)
	}
	return strings.Join(words, ", ") + more
}

package seatbelt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// operations are those that exist, by the names of their groups. A group's name
// ends in "*".
var operations = []string{
	"default", "file-read*", "file-read-data", "file-read-metadata", "file-read-xattr", "file-write*", "file-write-create", "file-write-data",
	"file-write-flags", "file-write-mode", "file-write-owner", "file-write-setugid", "file-write-times", "file-write-unlink", "file-write-xattr",
	"file-ioctl", "file-link", "file-map-executable", "process-exec", "process-fork", "process-info*", "process-info-pidinfo", "signal",
	"sysctl-read", "mach-lookup", "ipc-posix-sem", "ipc-posix-shm-read*", "ipc-posix-shm-read-data", "ipc-posix-shm-write-create", "nvram*", "nvram-set", "iokit-get-properties",
	"iokit-open", "pseudo-tty", "system-socket", "network-outbound", "network-inbound", "network-bind", "job-creation", "lsopen", "appleevent-send",
}

// A readProfile is a profile that was read.
type readProfile struct{ rules []rule }

// A rule allows or denies operations where one of its filters matches, or always
// if it has none.
type rule struct {
	allow      bool
	operations []string
	filters    []filter
}

// parseProfile reads a profile with the parameters that it is given.
func parseProfile(text string, params map[string]string) (*readProfile, error) {
	forms, err := read(text)
	if err != nil {
		return nil, err
	}
	if len(forms) < 2 || !isVersion(forms[0]) {
		return nil, errors.New("the profile does not begin with (version 1)")
	}
	p := &readProfile{}
	for _, f := range forms[1:] {
		r, err := parseRule(f, params)
		if err != nil {
			return nil, err
		}
		p.rules = append(p.rules, r)
	}
	return p, nil
}

func isVersion(n node) bool {
	return len(n.list) == 2 && n.list[0].symbol == "version" && n.list[1].symbol == "1"
}

func parseRule(n node, params map[string]string) (rule, error) {
	if len(n.list) < 2 || n.list[0].symbol != "allow" && n.list[0].symbol != "deny" {
		return rule{}, fmt.Errorf("this is no rule: %+v", n)
	}
	r := rule{allow: n.list[0].symbol == "allow"}
	for _, item := range n.list[1:] {
		switch {
		case item.isList:
			f, err := parseFilter(item, params)
			if err != nil {
				return rule{}, err
			}
			r.filters = append(r.filters, f)
		case len(r.filters) > 0 || !slices.Contains(operations, item.symbol):
			return rule{}, fmt.Errorf("no operation: %q", item.symbol+item.text)
		default:
			r.operations = append(r.operations, item.symbol)
		}
	}
	return r, nil
}

// A request is something that a process wants to do.
type request struct {
	Operation string
	// Path is the file that it is about, as the kernel names it.
	Path string
	// Folder: it is a folder. Extension is what the file is marked with.
	Folder    bool
	Extension string
	// Name is the service, setting or piece of memory that it is about.
	Name string
	// Local and Remote are the ends of a connection, SameSandbox is about the
	// process that a signal goes to.
	Local, Remote *address
	SameSandbox   bool
}

// An address is one end of a connection: Protocol is tcp, udp or unix.
type address struct {
	Protocol string
	// Host is an address, or localhost for those of the loopback.
	Host string
	Port int
	Path string
}

// allows reports whether the profile allows a request: the last rule that
// matches decides.
func (p *readProfile) allows(r request) bool {
	for _, rule := range slices.Backward(p.rules) {
		if rule.covers(r.Operation) && rule.matches(r) {
			return rule.allow
		}
	}
	return false
}

// allowsByName is Allows where a rule that names the operation beats every rule
// for a group of operations, and that one for all: the other way to read what
// Apple does not document.
func (p *readProfile) allowsByName(r request) bool {
	for _, closeness := range []func(string) bool{
		func(o string) bool { return o == r.Operation },
		func(o string) bool { return strings.HasSuffix(o, "*") && inGroup(o, r.Operation) },
		func(o string) bool { return o == "default" },
	} {
		for _, rule := range slices.Backward(p.rules) {
			if slices.ContainsFunc(rule.operations, closeness) && rule.matches(r) {
				return rule.allow
			}
		}
	}
	return false
}

func (r rule) covers(operation string) bool {
	return slices.ContainsFunc(r.operations, func(o string) bool {
		return o == operation || o == "default" || inGroup(o, operation)
	})
}

func inGroup(group, operation string) bool {
	prefix, ok := strings.CutSuffix(group, "*")
	return ok && strings.HasPrefix(operation, prefix)
}

func (r rule) matches(q request) bool {
	return len(r.filters) == 0 || slices.ContainsFunc(r.filters, func(f filter) bool { return f(q) })
}

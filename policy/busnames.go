package policy

import "strings"

// A guardedName is a bus name that gives control over the whole session or access to its
// secrets. A wildcard never includes it.
type guardedName struct{ name, why string }

// guardedNames may only be granted by their own name. An entry that ends in a dot stands for
// all names that begin with it.
var guardedNames = [...]guardedName{
	{"org.freedesktop.systemd1", "starts programs outside of any sandbox"},
	{"org.freedesktop.Flatpak", "starts programs outside of any sandbox"},
	{"org.freedesktop.portal.", "opens files, addresses and the screen for the user"},
	{"org.freedesktop.impl.portal.", "decides what the user is asked"},
	{"org.freedesktop.secrets", "hands the user's passwords out"},
	{"org.gnome.keyring", "hands the user's passwords out"},
	{"org.kde.kwalletd", "hands the user's passwords out"},
	{"org.kde.kwalletd5", "hands the user's passwords out"},
	{"org.kde.kwalletd6", "hands the user's passwords out"},
	{"org.gnome.OnlineAccounts", "hands the tokens of the user's accounts out"},
	{"org.gnome.evolution.dataserver.", "reads the user's mail, calendar and contacts"},
	{"org.gtk.vfs.", "reads and writes files outside of any sandbox"},
	{"ca.desrt.dconf", "changes settings that start programs"},
	{"org.freedesktop.FileManager1", "opens files for the user"},
	{"org.gnome.Shell", "runs code in the user's desktop"},
	{"org.gnome.SessionManager", "starts programs with the session"},
	{"org.gnome.SettingsDaemon", "changes settings that start programs"},
	{"org.gnome.Mutter.", "sees the screen and types for the user"},
	{"org.gnome.Terminal", "starts programs outside of any sandbox"},
	{"org.gnome.Console", "starts programs outside of any sandbox"},
	{"org.kde.KWin", "runs code in the user's desktop"},
	{"org.kde.plasmashell", "runs code in the user's desktop"},
	{"org.kde.klauncher", "starts programs outside of any sandbox"},
	{"org.kde.klauncher5", "starts programs outside of any sandbox"},
	{"org.kde.kded5", "loads code into the user's session"},
	{"org.kde.kded6", "loads code into the user's session"},
	{"org.kde.krunner", "starts programs outside of any sandbox"},
	{"org.kde.yakuake", "starts programs outside of any sandbox"},
	{"org.kde.konsole", "starts programs outside of any sandbox"},
	{"org.a11y.", "sees the screen and types for the user"},
	{"org.freedesktop.IBus", "sees what the user types"},
	{"org.fcitx.", "sees what the user types"},
}

// Guarded returns why the name may only be granted by itself. It is empty for names that a
// wildcard may grant.
func (r BusRule) Guarded() string {
	for i := range guardedNames {
		if g := &guardedNames[i]; g.name == r.Name || strings.HasSuffix(g.name, ".") && strings.HasPrefix(r.Name, g.name) {
			return g.why
		}
	}
	return ""
}

// guardedBelow returns the first guarded name that a wildcard would include. The proxy takes
// "org.example.*" to include org.example itself.
func guardedBelow(prefix string) *guardedName {
	for i := range guardedNames {
		g := &guardedNames[i]
		if g.name == prefix || strings.HasPrefix(g.name, prefix+".") || strings.HasSuffix(g.name, ".") && strings.HasPrefix(prefix+".", g.name) {
			return g
		}
	}
	return nil
}

// checkBusRule checks the name and the rule for calls or signals.
func checkBusRule(a, name, rule string, hasRule bool) error {
	switch a {
	case "see", "talk", "own":
		if hasRule {
			return faultf("write the name alone, or list it under call", "%q has a rule, which %s takes none of", name+"="+rule, a)
		}
	case "call", "broadcast":
		if err := checkBusMembers(rule); err != nil {
			return err
		}
	default:
		return faultf("write see, talk, own, call or broadcast", "%q is not an access to the bus", a)
	}
	return checkBusName(a, name)
}

// checkBusName checks a well-known name, or a prefix with ".*".
func checkBusName(a, name string) error {
	const fix = "write a name such as org.freedesktop.Notifications, or org.example.App.*"
	prefix, wild := strings.CutSuffix(name, ".*")
	elements := strings.Split(prefix, ".")
	switch {
	case name == "":
		return faultf(fix, "the name is empty")
	case strings.HasPrefix(name, ":"):
		return faultf(fix, "%q is the number of one connection, not a name", name)
	case strings.Contains(prefix, "*"):
		return faultf(fix, "%q has a * that is not at its end, after a dot", name)
	case len(name) > 255 || len(elements) < 2 && !wild:
		return faultf(fix, "%q is not a name on the bus", name)
	}
	for _, e := range elements {
		if !isBusElement(e) {
			return faultf(fix, "%q is not a name on the bus", name)
		}
	}
	if name == "org.freedesktop.DBus" {
		return faultf("remove the entry", "the bus itself needs no rule: its harmless calls always pass, and no others")
	}
	if !wild || a == "see" {
		return nil
	}
	if g := guardedBelow(prefix); g != nil {
		return faultf("list the names that are needed", "%q would reach %s, which %s", name, strings.TrimSuffix(g.name, "."), g.why)
	}
	return nil
}

func isBusElement(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// checkBusMembers checks "[METHOD][@PATH]".
func checkBusMembers(rule string) error {
	const fix = "write NAME=INTERFACE.METHOD, NAME=INTERFACE.*, NAME=*@/path or NAME=*@/path/*"
	method, object, hasPath := strings.Cut(rule, "@")
	if hasPath && !isObjectPath(strings.TrimSuffix(object, "/*")) && object != "/*" {
		return faultf(fix, "%q is not the path of an object", object)
	}
	if method == "" || method == "*" {
		return nil
	}
	elements := strings.Split(strings.TrimSuffix(method, ".*"), ".")
	for _, e := range elements {
		if !isBusElement(e) || strings.Contains(e, "-") {
			return faultf(fix, "%q is not an interface with a method", method)
		}
	}
	if len(elements) < 2 {
		return faultf(fix, "%q has no interface", method)
	}
	return nil
}

func isObjectPath(p string) bool {
	if p == "/" {
		return true
	}
	rest, ok := strings.CutPrefix(p, "/")
	if !ok {
		return false
	}
	for _, e := range strings.Split(rest, "/") {
		if e == "" || strings.Trim(e, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return false
		}
	}
	return true
}

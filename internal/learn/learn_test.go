package learn

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// machine is one on which these paths exist, folders with a slash behind them.
func machine(paths ...string) Machine {
	return Machine{Home: "/home/ana", Workspace: "/home/ana/app", Locked: []string{"/home/ana/.config/cloche"}, Stat: func(p string) (bool, bool) {
		for _, have := range paths {
			if name, folder := strings.CutSuffix(have, "/"); name == p {
				return true, folder
			}
		}
		return false, false
	}}
}

func onlyRead(op plan.Op, path string) plan.Denial {
	return plan.Denial{Decision: plan.Decision{Op: op, Path: path, Access: policy.Read, Rule: "paths.read", Subject: "/", At: "/"}, Program: "/usr/bin/tool"}
}

func unseen(path string) plan.Denial {
	return plan.Denial{Decision: plan.Decision{Op: plan.OpRead, Path: path, Access: policy.Hidden, Rule: "paths.hide", At: "/"}, Program: "tool"}
}

func sensitive(op plan.Op, path, rule, at string) plan.Denial {
	d := plan.Denial{Decision: plan.Decision{Op: op, Path: path, Access: policy.Read, Rule: rule, At: at, Reason: "why"}, Program: "tool"}
	d.Origin = policy.Origin{Layer: policy.LayerPreset, Source: "preset x", Line: 7}
	if rule != "paths.protect" {
		d.Access = policy.Hidden
	}
	return d
}

// brief is a need in a few words.
func brief(n Need) string {
	s := string(n.Kind) + " " + n.Subject() + " " + [...]string{"safe", "plain", "sensitive", "closed"}[n.Class]
	if n.Missing {
		s += " missing"
	}
	if n.Optional {
		s += " optional"
	}
	return s
}

func briefs(needs []Need) []string {
	var out []string
	for _, n := range needs {
		out = append(out, brief(n))
	}
	return out
}

// N6: each refusal becomes the narrowest rule that would do, in the class that
// says who has to agree.
func TestNeeds(t *testing.T) {
	const home = "/home/ana"
	for name, c := range map[string]struct {
		denied []plan.Denial
		want   []string
	}{
		"opam":               {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.opam/default/x")}, []string{"write /home/ana/.opam/default sensitive"}},
		"zsh":                {[]plan.Denial{onlyRead(plan.OpMkdir, home+"/.zsh")}, []string{"write /home/ana/.zsh sensitive missing optional"}},
		"yarn's programs":    {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.yarn/bin/x")}, []string{"write /home/ana/.yarn/bin sensitive"}},
		"yarn's cache":       {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.yarn/berry/cache/x")}, []string{"write /home/ana/.yarn/berry/cache safe missing optional"}},
		"composer":           {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.composer/vendor/bin/x")}, []string{"write /home/ana/.composer/vendor/bin sensitive"}},
		"gems":               {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.gem/bin/x")}, []string{"write /home/ana/.gem/bin sensitive"}},
		"gnome-shell":        {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.local/share/gnome-shell/extensions/x")}, []string{"write /home/ana/.local/share/gnome-shell sensitive missing optional"}},
		"versions of Python": {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.pyenv/versions/x")}, []string{"write /home/ana/.pyenv sensitive missing optional"}},
		"any bin":            {[]plan.Denial{onlyRead(plan.OpMkdir, home+"/tools/bin")}, []string{"write /home/ana/tools sensitive"}},
		"a file that exists": {[]plan.Denial{onlyRead(plan.OpWrite, "/data/log")}, []string{"write /data/log plain"}},
		"a new file":         {[]plan.Denial{onlyRead(plan.OpCreate, "/data/new")}, []string{"write /data plain"}},
		"removing":           {[]plan.Denial{onlyRead(plan.OpUnlink, "/data/log")}, []string{"write /data plain"}},
		"a cache": {[]plan.Denial{onlyRead(plan.OpMkdir, home+"/.cache/go-build"), onlyRead(plan.OpCreate, home+"/.cache/go-build/00/x")},
			[]string{"write /home/ana/.cache/go-build safe missing optional"}},
		"a cache of somebody": {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.cache/thing/a/b")}, []string{"write /home/ana/.cache/thing plain missing optional"}},
		"a folder in home":    {[]plan.Denial{onlyRead(plan.OpMkdir, home+"/.thing")}, []string{"write /home/ana/.thing plain missing optional"}},
		"a folder for all":    {[]plan.Denial{onlyRead(plan.OpMkdir, home+"/.config")}, []string{"write /home/ana sensitive"}},
		"a file in home":      {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.thingrc")}, []string{"write /home/ana sensitive"}},
		"all of home covers nothing": {[]plan.Denial{onlyRead(plan.OpCreate, home+"/.thingrc"), onlyRead(plan.OpWrite, home+"/notes")},
			[]string{"write /home/ana sensitive", "write /home/ana/notes plain"}},
		"the system":                   {[]plan.Denial{onlyRead(plan.OpCreate, "/usr/lib/x"), onlyRead(plan.OpWrite, "/etc/hosts")}, []string{"write /etc/hosts sensitive", "write /usr/lib sensitive"}},
		"python's own cache":           {[]plan.Denial{onlyRead(plan.OpCreate, "/usr/lib/python3/__pycache__/x.pyc")}, nil},
		"a secret":                     {[]plan.Denial{sensitive(plan.OpRead, home+"/.ssh/config", "paths.hide", home+"/.ssh")}, []string{"read /home/ana/.ssh/config sensitive"}},
		"a sink":                       {[]plan.Denial{sensitive(plan.OpCreate, home+"/app/.vscode/x", "paths.protect", home+"/app/.vscode")}, []string{"write /home/ana/app/.vscode sensitive optional"}},
		"git's guard":                  {[]plan.Denial{sensitive(plan.OpRename, home+"/app/.git/config", "git.config", home+"/app/.git/config")}, []string{"write /home/ana/app/.git/config closed"}},
		"a new file in what is hidden": {[]plan.Denial{sensitive(plan.OpCreate, home+"/.ssh/new", "paths.hide", home+"/.ssh")}, []string{"write /home/ana/.ssh sensitive"}},
		"a program":                    {[]plan.Denial{{Decision: plan.Decision{Op: plan.OpExec, Path: "/opt/tool/run", Access: policy.Hidden, Rule: "paths.hide", At: "/"}}}, []string{"read /opt/tool/run safe"}},
		"a socket":                     {[]plan.Denial{{Decision: plan.Decision{Op: plan.OpConnect, Path: "/run/x.sock", Access: policy.Hidden, Rule: judge.RuleSockets, At: "/run/x.sock"}}}, []string{"socket /run/x.sock sensitive"}},
		"an abstract socket":           {[]plan.Denial{{Decision: plan.Decision{Op: plan.OpConnect, Path: "@x", Access: policy.Hidden, Rule: judge.RuleSockets, At: "@x"}}}, []string{"socket @x sensitive"}},
		"what the kernel shows":        {[]plan.Denial{{Decision: plan.Decision{Op: plan.OpWrite, Path: "/proc/sys/x", Access: policy.Read, Rule: "paths.read", At: "/proc", Origin: policy.Origin{Layer: policy.LayerBuiltin}}}}, []string{"write /proc/sys/x closed"}},
		"cloche's own":                 {[]plan.Denial{sensitive(plan.OpRead, home+"/.config/cloche/policy.yaml", "paths.hide", home+"/.config/cloche")}, []string{"read /home/ana/.config/cloche/policy.yaml closed"}},
		"a file is read":               {[]plan.Denial{unseen("/data/a")}, []string{"read /data/a safe"}},
		"many are read":                {[]plan.Denial{unseen("/data/set/a"), unseen("/data/set/b"), unseen("/data/set/c")}, []string{"read /data/set safe"}},
		"many of home":                 {[]plan.Denial{unseen(home + "/a"), unseen(home + "/b"), unseen(home + "/c")}, []string{"read /home/ana/a safe", "read /home/ana/b safe", "read /home/ana/c safe"}},
		"all of home":                  {[]plan.Denial{unseen(home)}, []string{"read /home/ana plain"}},
		"a version":                    {[]plan.Denial{unseen("/opt/node/v20.11.1/bin/node")}, []string{"read /opt/node safe"}},
		"a tool":                       {[]plan.Denial{unseen(home + "/.pyenv/versions/3.11.7/bin/python")}, []string{"read /home/ana/.pyenv safe"}},
		"written and read":             {[]plan.Denial{unseen("/data/a"), onlyRead(plan.OpCreate, "/data/b")}, []string{"write /data plain"}},
		"the same twice":               {[]plan.Denial{unseen("/data/a"), unseen("/data/a")}, []string{"read /data/a safe"}},
		"a name like a glob":           {[]plan.Denial{unseen("/data/*"), unseen("/x/[a]/b")}, []string{"read /data safe", "read /x/[a]/b closed"}},
		"no text":                      {[]plan.Denial{unseen("/data/\xff"), onlyRead(plan.OpWrite, "/d/a\nb")}, []string{"read /data safe", "write /d plain"}},
		"a secret of no text": {[]plan.Denial{sensitive(plan.OpRead, home+"/.ssh/a\nb", "paths.hide", home+"/.ssh")},
			[]string{"read /home/ana/.ssh/a\nb closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("/data/")
			if got := briefs(m.Needs(fixed(c.denied))); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// N6: a secret and a file that programs outside run are sensitive also where it
// was not their rule that refused, as where everything is hidden or read-only.
func TestKeptByOtherRules(t *testing.T) {
	const home = "/home/ana"
	m := machine(home+"/.ssh/", home+"/.bashrc")
	m.Judge = func(p string) plan.Decision {
		switch {
		case strings.HasPrefix(p, home+"/.ssh"):
			return plan.Decision{Access: policy.Hidden, Rule: "paths.hide", At: home + "/.ssh"}
		case strings.HasPrefix(p, home+"/.bashrc"), strings.HasPrefix(p, home+"/.local/bin"):
			return plan.Decision{Access: policy.Read, Rule: "paths.protect", At: p[:len(home)+len("/.bashrc")]}
		}
		return plan.Decision{Access: policy.Write, At: "/"}
	}
	for _, c := range []struct {
		denial plan.Denial
		want   string
	}{
		{unseen(home + "/.ssh/id"), "read /home/ana/.ssh/id sensitive"},
		{onlyRead(plan.OpCreate, home+"/.ssh/new"), "write /home/ana/.ssh sensitive"},
		{onlyRead(plan.OpWrite, home+"/.bashrc"), "write /home/ana/.bashrc sensitive"},
		{unseen(home + "/.bashrc"), "read /home/ana/.bashrc safe"},
		{onlyRead(plan.OpWrite, home+"/notes"), "write /home/ana/notes plain"},
	} {
		if got := briefs(m.Needs(fixed([]plan.Denial{c.denial}))); !reflect.DeepEqual(got, []string{c.want}) {
			t.Errorf("%s %s: got %q, want %q", c.denial.Op, c.denial.Path, got, c.want)
		}
	}
}

// N6: a rule that the judge says would not help is not proposed, and the need says so. The
// rule of a file is tried, though the option for the same path would help: an option stands
// above more rules than a file does.
func TestClosedUnlessAllowed(t *testing.T) {
	rule := policy.Edit{Field: "paths.write", Value: "/data"}
	for _, c := range []struct {
		name        string
		rule        bool // helps
		brief, says string
	}{
		{name: "the rule helps", rule: true, brief: "write /data plain"},
		{name: "only the option helps", brief: "write /data closed", says: "no single option allows it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine("/data/")
			d := onlyRead(plan.OpCreate, "/data/new")
			all := fixed([]plan.Denial{d})
			if !slices.Equal(all[0].Fix, []policy.Edit{rule}) {
				t.Fatalf("the option is %v, want %v", all[0].Fix, rule)
			}
			var tried []policy.Edit
			m.Allows = func(of *plan.Denial, e policy.Edit) bool {
				if of.Path != d.Path || of.Op != d.Op {
					t.Errorf("%s %s was judged instead of what was denied", of.Op, of.Path)
				}
				tried = append(tried, e)
				return c.rule
			}
			got := m.Needs(all)
			if !slices.Equal(briefs(got), []string{c.brief}) || !strings.Contains(got[0].Why, c.says) || (c.says == "") != (got[0].Why == "") {
				t.Errorf("got %q (%+v), want %q with the reason %q", briefs(got), got, c.brief, c.says)
			}
			if len(tried) == 0 || tried[0] != rule {
				t.Errorf("tried %v, want %v first", tried, rule)
			}
		})
	}
}

// N6: where a rule for a folder would not help, the one for only what was refused is
// proposed, with the class of the folder, and the files of the folder are not put together.
func TestOnlyWhatHelps(t *testing.T) {
	m := machine("/data/", "/data/.vscode/", "/data/.vscode/a", "/data/.vscode/b", "/data/.vscode/c")
	helping := map[string][]string{} // by the path that was denied
	m.Allows = func(d *plan.Denial, e policy.Edit) bool { return slices.Contains(helping[d.Path], e.Value) }
	helps := func(d plan.Denial, values ...string) plan.Denial {
		helping[d.Path] = values
		works := func(_ *plan.Decision, e policy.Edit) bool { return slices.Contains(values, e.Value) }
		judge.Fixer{Works: works}.Fix(&d.Decision)
		return d
	}
	var all []plan.Denial
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, helps(onlyRead(plan.OpWrite, "/data/.vscode/"+name), "/data/.vscode/"+name))
	}
	if got, want := briefs(m.Needs(all)), []string{"write /data/.vscode/a plain", "write /data/.vscode/b plain", "write /data/.vscode/c plain"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	other := helps(onlyRead(plan.OpCreate, "/data/.vscode/new"), "/data/.vscode") // a need of the folder does not cover them
	if got := briefs(m.Needs(append(all, other))); len(got) != 4 {
		t.Errorf("got %q, want each", got)
	}
	protected := sensitive(plan.OpWrite, "/data/.vscode/a", "paths.protect", "/data/.vscode")
	if got, want := briefs(m.Needs([]plan.Denial{helps(protected, "/data/.vscode/a")})), []string{"write /data/.vscode/a sensitive"}; !reflect.DeepEqual(got, want) {
		t.Errorf("protected by the rule that refused: got %q, want %q", got, want)
	}
	m.Judge = func(string) plan.Decision {
		return plan.Decision{Access: policy.Read, Rule: "paths.protect", At: "/data/.vscode"}
	}
	if got, want := briefs(m.Needs(all[:1])), []string{"write /data/.vscode/a sensitive"}; !reflect.DeepEqual(got, want) {
		t.Errorf("protected by another rule: got %q, want %q", got, want)
	}
	if got, want := briefs(m.Needs([]plan.Denial{helps(all[0], "/elsewhere")})), []string{"write /data/.vscode/a closed"}; !reflect.DeepEqual(got, want) {
		t.Errorf("nothing helps: got %q, want %q", got, want)
	}
}

// N6: a rule names the host's path also of what is hidden in a workspace that is elsewhere inside.
func TestRemapped(t *testing.T) {
	m := machine()
	p := &plan.Plan{Home: m.Home, Workspace: m.Workspace, Inside: "/work", Paths: []plan.Path{
		{Path: "/work", Source: m.Workspace, Access: policy.Write}, {Path: "/work/keys", Access: policy.Hidden, Content: plan.Empty}}}
	m.Plan = p
	d := sensitive(plan.OpRead, "/work/keys/a", "paths.hide", "/work/keys")
	judge.Fixer{Plan: p}.Fix(&d.Decision)
	if got, want := briefs(m.Needs(fixed([]plan.Denial{d}))), []string{"read /home/ana/app/keys/a sensitive"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func refusedHost(op plan.Op, host string, port int, protocol, rule string) plan.Denial {
	d := plan.Denial{Decision: plan.Decision{Op: op, Host: host, Port: port, Protocol: protocol, Access: policy.Hidden, Rule: rule, Reason: "why"}, Program: "tool"}
	if a, err := netip.ParseAddr(host); err == nil {
		d.Addr = a
	}
	judge.Fixer{}.Fix(&d.Decision)
	return d
}

// N6: hosts are learned by name, with the port where one is known.
func TestHosts(t *testing.T) {
	for name, c := range map[string]struct {
		denied []plan.Denial
		want   []string
	}{
		"looked up":         {[]plan.Denial{refusedHost(plan.OpResolve, "example.org", 0, "", judge.RuleNetworkAllow)}, []string{"connect example.org plain"}},
		"and connected to":  {[]plan.Denial{refusedHost(plan.OpResolve, "example.org", 0, "", judge.RuleNetworkAllow), refusedHost(plan.OpConnect, "example.org", 443, "tcp", judge.RuleNetworkAllow)}, []string{"connect example.org:443 plain"}},
		"a private address": {[]plan.Denial{refusedHost(plan.OpConnect, "10.0.0.1", 80, "tcp", judge.RuleNetworkPrivate)}, []string{"connect 10.0.0.1:80 sensitive"}},
		"this machine":      {[]plan.Denial{refusedHost(plan.OpConnect, "127.0.0.1", 5432, "tcp", judge.RuleNetworkPrivate)}, []string{"forward 5432 sensitive"}},
		"denied by a rule":  {[]plan.Denial{refusedHost(plan.OpConnect, "example.org", 443, "tcp", judge.RuleNetworkDeny)}, []string{"connect example.org closed"}},
		"everything":        {[]plan.Denial{refusedHost(plan.OpResolve, "*", 0, "", judge.RuleNetworkAllow)}, []string{"connect * closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine()
			if got := briefs(m.Needs(fixed(c.denied))); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// N6: a host that was allowed for all ports keeps those that were used.
func TestPorts(t *testing.T) {
	needs := []Need{{Kind: Connect, Host: "a.example"}, {Kind: Connect, Host: "b.example"}, {Kind: Connect, Host: "c.example:1"}, {Kind: Write, Path: "/x"}}
	got := Ports(needs, []plan.Connection{
		{Protocol: "dns", Name: "a.example", Port: 53, Allowed: true}, {Protocol: "tcp", Name: "a.example", Port: 443, Allowed: true},
		{Protocol: "udp", Name: "A.example", Port: 443, Allowed: true}, {Protocol: "tcp", Name: "b.example", Port: 1},
	})
	var hosts []string
	for _, n := range got {
		hosts = append(hosts, n.Subject())
	}
	if want := []string{"a.example:443", "udp://a.example:443", "b.example", "c.example:1", "/x"}; !reflect.DeepEqual(hosts, want) {
		t.Errorf("got  %q\nwant %q", hosts, want)
	}
}

// N6: what is named is agreed to, and nothing beside it.
func TestNamed(t *testing.T) {
	list := []string{"/home/ana/.ssh", "example.org", "5432"}
	for _, c := range []struct {
		need Need
		want bool
	}{
		{Need{Kind: Read, Path: "/home/ana/.ssh/config"}, true},
		{Need{Kind: Read, Path: "/home/ana/.sshx"}, false},
		{Need{Kind: Write, Path: "/home/ana"}, false},
		{Need{Kind: Connect, Host: "example.org:443"}, true},
		{Need{Kind: Connect, Host: "www.example.org"}, false},
		{Need{Kind: Forward, Host: "5432"}, true},
		{Need{Kind: Forward, Host: "543"}, false},
	} {
		if got := c.need.Named(list); got != c.want {
			t.Errorf("%s: %v, want %v", brief(c.need), got, c.want)
		}
	}
}

// fixed adds what would allow each denial, as the engine does.
func fixed(list []plan.Denial) []plan.Denial {
	for i := range list {
		if d := &list[i].Decision; d.Fix == nil && d.NoFix == "" {
			judge.Fixer{}.Fix(d)
		}
	}
	return list
}

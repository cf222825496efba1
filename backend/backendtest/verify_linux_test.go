package backendtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/backend/backendtest"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// oneLayer is a broken backend on a machine that has no Landlock, which would hold
// behind the mounts much of what a fault takes away.
type oneLayer struct{ backend.Backend }

func (b oneLayer) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	own := *s
	own.Landlock = host.Landlock{}
	return b.Backend.Compile(p, &own)
}

// noFolderMasks drops everything that hides folders which the policy names: it
// leaves nothing behind that would act on the host's folders instead.
func noFolderMasks(l *backend.Launch, p *plan.Plan) {
	for _, e := range p.Paths {
		if e.Access != policy.Hidden || e.Kind != hostfs.Dir || e.Origin.Layer != policy.LayerCommand {
			continue
		}
		options(func(words []string) []string {
			words = cutWords(words, "--perms", "0755", "--tmpfs", e.Path)
			words = cutWords(words, "--chmod", "", e.Path)
			return cutWords(words, "--remount-ro", e.Path)
		})(l, p)
	}
}

// cutWords takes a sequence out of a list; an empty word stands for any.
func cutWords(words []string, sequence ...string) []string {
	for i := 0; i+len(sequence) <= len(words); i++ {
		same := slices.EqualFunc(words[i:i+len(sequence)], sequence, func(w, s string) bool { return s == "" || w == s })
		if same {
			return slices.Delete(words, i, i+len(sequence))
		}
	}
	return words
}

// withoutVariable leaves one variable of the command out.
func withoutVariable(name string) func(*backend.Launch, *plan.Plan) {
	return options(func(words []string) []string {
		return cutWords(words, "--setenv", name, "")
	})
}

// wrongText makes generated files say something else.
func wrongText(l *backend.Launch, _ *plan.Plan) {
	for i, f := range l.Files {
		if f.Kind == backend.Data && strings.HasPrefix(string(f.Data), "127.0.0.1") {
			l.Files[i].Data = append([]byte("192.0.2.1 evil\n"), f.Data...)
		}
	}
}

// N7: verify finds each rule that a backend does not hold, by its name, and
// nothing where all are held.
func TestVerifyFindsFaults(t *testing.T) {
	testenv.Need(t, "bwrap")
	tests := []struct {
		name  string
		fault func(*backend.Launch, *plan.Plan)
		only  string
		// finds are the beginnings of messages, each of which has to be there.
		finds []string
	}{
		{"no folder masks", noFolderMasks, "verify/paths", []string{"paths.hide /"}},
		{"no file masks", noFileMasks, "verify/paths", []string{"paths.hide /"}},
		{"no pins", noPins, "verify/paths", []string{"paths.hide /"}},
		{"writable binds", replacing("--ro-bind-fd", "--bind-fd"), "verify/paths", []string{"paths.read /", "paths.protect /"}},
		{"read-only binds", replacing("--bind-fd", "--ro-bind-fd"), "verify/workspace", []string{"paths.write /"}},
		{"gaps kept silent", func(l *backend.Launch, _ *plan.Plan) { l.Gaps = nil }, "verify/patterns", []string{"paths.hide /", "paths.protect /"}},
		{"another /etc/hosts", wrongText, "verify/layout", []string{"hosts /etc/hosts"}},
		{"no network namespace", without("--unshare-net", 0), "verify/network", []string{"network.mode none", "network.mode loopback", "network.interfaces none"}},
		{"no ipc namespace", without("--unshare-ipc", 0), "verify/workspace", []string{"ipc shared memory of the host"}},
		{"no system call filter", without("--seccomp", 1), "verify/workspace", []string{"system calls filter", "system calls typing into a terminal", "system calls setuid files", "system calls a new user namespace"}},
		{"a variable is missing", withoutVariable("SET"), "verify/environment", []string{"env SET"}},
		{"a leaking environment", leak, "verify/environment", []string{"env all others"}},
		{"no limits", func(l *backend.Launch, _ *plan.Plan) { unlimit(l) }, "verify/limits", []string{"limits.open_files 100", "limits.file_size 1048576"}},
		{"nothing", nil, "verify/", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			entry := entryOf(tt.fault)
			entry.Backend = oneLayer{entry.Backend}
			failures, err := backendtest.Check(t.TempDir(), entry, backendtest.Options{Only: []string{tt.only}})
			if err != nil {
				t.Fatal(err)
			}
			var messages []string
			for _, f := range failures {
				messages = append(messages, f.Messages...)
			}
			for _, want := range tt.finds {
				if !slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, want) }) {
					t.Errorf("verify does not find %q; it finds %q", want, messages)
				}
			}
			if slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, "trying the rules changed the host") }) {
				t.Errorf("verify leaves traces of a sandbox that does not hold: %q", messages)
			}
			if len(tt.finds) == 0 && len(messages) > 0 {
				t.Errorf("verify finds %q where nothing is wrong", messages)
			}
		})
	}
}

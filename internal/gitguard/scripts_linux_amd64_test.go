package gitguard

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloche-dev/cloche/internal/gitguard/gitscripts"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// N8: what people do with git works under the guard, and nothing of it is
// taken for an attack.
func TestSessions(t *testing.T) {
	testenv.Need(t, "git")
	for _, s := range gitscripts.Sessions {
		t.Run(s.Name, func(t *testing.T) {
			testenv.Need(t, s.Needs...)
			t.Parallel()
			tr, base := guarded(t, s)
			if marked, err := s.Visit(base); err != nil || marked {
				t.Errorf("afterwards: ran outside %v, error %v", marked, err)
			}
			for _, v := range tr.denied {
				t.Errorf("refused: %s: %s", v.Rule, v.Reason)
			}
		})
	}
}

// N8: no attack runs anything outside, whatever became of it inside.
func TestAttacks(t *testing.T) {
	testenv.Need(t, "git")
	for _, s := range gitscripts.Attacks {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			tr, base := guarded(t, s)
			if marked, err := s.Visit(base); err != nil || marked {
				t.Errorf("ran outside %v, error %v; refused were: %+v", marked, err, tr.denied)
			}
		})
	}
}

// Attacks that do nothing when nobody stops them would prove nothing.
func TestAttacksAreReal(t *testing.T) {
	testenv.Need(t, "git")
	for _, s := range gitscripts.Attacks {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			base := prepared(t, s)
			argv := s.Argv(base)
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir = gitscripts.Workspace(base)
			out, _ := cmd.CombinedOutput()
			marked, err := s.Visit(base)
			if s.Quiet && err == nil {
				t.Errorf("the check finds nothing\n%s", out)
			}
			if !s.Quiet && !marked {
				t.Errorf("nothing ran outside\n%s", out)
			}
		})
	}
}

func prepared(t *testing.T, s gitscripts.Script) (base string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(base); err != nil {
		t.Fatal(err)
	}
	return base
}

// guarded runs the script under the guard.
func guarded(t *testing.T, s gitscripts.Script) (*tracer, string) {
	t.Helper()
	base := prepared(t, s)
	tr := &tracer{root: gitscripts.Workspace(base)}
	status, output, err := tr.run(s.Argv(base), tr.root)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if s.WantOK && status != 0 {
		t.Errorf("exit status %d\n%s", status, output)
	}
	return tr, base
}

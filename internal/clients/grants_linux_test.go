package clients

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N1: a name that is looked up, a connection and a request that are refused are on
// record, each with an option that, as it is written, lets the same command pass.
func TestEachNetworkDenialHasItsGrant(t *testing.T) {
	testenv.Need(t, "curl", "getent")
	cases := map[string]struct {
		command []string
		flags   []string
		op      string
		grant   string
	}{
		"resolve": {[]string{"getent", "hosts", "other.example"}, nil, "resolve", "--allow other.example"},
		"connect": {[]string{"curl", "-sS", "-f", "-o", "/dev/null", "http://other.example/"}, nil, "connect", "--allow other.example:80"},
		"request": {[]string{"curl", "-sS", "-f", "-o", "/dev/null", "http://other.example/"},
			[]string{"--allow", "http://other.example/only"}, "request", "--allow http://other.example/"},
	}
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				in := s.with(append([]string{"--allow", "good.example"}, c.flags...)...)
				o := in.run(t, c.command...)
				grant := ""
				for _, d := range o.report.Result.Denied {
					if d.Host == "other.example" && (d.Op == c.op || grant == "") {
						grant = d.Grant
					}
				}
				// A refused name leads to an address at which nothing but the refusal is.
				if (o.status == 0) != (c.op == "resolve") || grant != c.grant {
					t.Fatalf("status %d, the option is %q, want %q: %+v\n%s", o.status, grant, c.grant, o.report.Result.Denied, o.stderr)
				}
				o = in.with(strings.Fields(grant)...).run(t, c.command...)
				if o.status != 0 || slices.ContainsFunc(o.report.Messages, func(m string) bool { return strings.Contains(m, "denied") }) {
					t.Errorf("with %s: status %d, %s", grant, o.status, o.stderr)
				}
			})
		}
	})
}

// N1: a name can be used where all addresses are allowed, and not where some are, as check
// says: internal/cli/testdata/script/network-none.txtar.
func TestNamesUnderRanges(t *testing.T) {
	testenv.Need(t, "curl")
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for allow, want := range map[string]bool{"0.0.0.0/0": true, "8.0.0.0/8": false} {
			o := s.with("--allow", allow).run(t, "curl", "-sS", "-f", "-o", "/dev/null", "http://good.example/")
			if (o.status == 0) != want {
				t.Errorf("with --allow %s: status %d, %s", allow, o.status, o.stderr)
			}
		}
	})
}

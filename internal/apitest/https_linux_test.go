package apitest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N3: check answers for requests inside TLS as it does for plain ones.
func TestCheckHTTPS(t *testing.T) {
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(
		policy.AllowHosts("GET,HEAD https://api.example.com/repos/me/**", "whole.example.com:443", "https://*.wide.example"),
		policy.Set("network.deny", "POST https://api.wide.example/admin/**")), dir)
	for target, want := range map[string]struct {
		allowed bool
		fix     string
	}{
		"GET https://api.example.com/repos/me/x":     {allowed: true},
		"https://api.example.com/repos/me/x":         {allowed: true},
		"POST https://api.example.com/repos/me/x":    {fix: "--allow https://api.example.com/repos/me/x"},
		"GET https://api.example.com/user":           {fix: "--allow https://api.example.com/user"},
		"GET http://api.example.com:443/repos/me/x":  {fix: "--allow http://api.example.com:443/repos/me/x"},
		"udp://api.example.com:443":                  {fix: "--allow udp://api.example.com:443"},
		"DELETE https://whole.example.com/x":         {allowed: true},
		"GET https://other.example.com/x":            {fix: "--allow other.example.com:443"},
		"DELETE https://any.wide.example/x":          {allowed: true},
		"POST https://api.wide.example/admin/x":      {},
		"POST https://api.wide.example/other":        {allowed: true},
		"GET https://api.example.com:8443/repos/me/": {fix: "--allow api.example.com:8443"},
	} {
		d, err := s.Check(plan.OpConnect, target)
		if fix := runoption.Text(d.Fix...); err != nil || d.Allowed != want.allowed || fix != want.fix {
			t.Errorf("%s: allowed %t by %s (%s), fix %q, %v; want %t, fix %q", target, d.Allowed, d.Rule, d.Reason, fix, err, want.allowed, want.fix)
		}
	}
	d, err := s.Check(plan.OpConnect, "DELETE https://whole.example.com/x")
	if err != nil || !strings.Contains(d.Reason, "every method and path, because no rule looks inside TLS") {
		t.Errorf("it does not say that the method is not looked at: %q, %v", d.Reason, err)
	}
}

// N3 N14: a policy that needs a look inside TLS does not run where nothing can look. With best
// effort it runs, and each rule is a gap.
func TestNoInspector(t *testing.T) {
	testenv.AlsoAsUser(t)
	dir := workspace(t)
	needs := policy.Workspace(dir).With(policy.AllowHosts("https://api.example.com/v1/**", "whole.example.com"))
	isInspection := func(g backend.Gap) bool {
		return g.Rule == "network.allow" && g.Subject == "https://api.example.com/v1/**" && strings.Contains(g.Reason, "cannot look inside TLS") && !g.Optional
	}
	for _, warm := range []bool{false, true} {
		var opts []cloche.Option
		if warm {
			opts = append(opts, cloche.WithWarm())
		}
		err := open(t, needs, dir, opts...).Command(t.Context(), "true").Run()
		gap, ok := errors.AsType[*cloche.GapError](err)
		if !ok || !slices.ContainsFunc(gap.Gaps, isInspection) {
			t.Errorf("warm %t: the command was not refused by the rule: %v", warm, err)
		}
	}
	r := capture(t, open(t, needs.With(policy.WithRequire(policy.BestEffort)), dir), "true")
	if !slices.ContainsFunc(r.Gaps, isInspection) {
		t.Errorf("the gap is not reported: %v", r.Gaps)
	}
	if _, err := open(t, policy.Workspace(dir).With(policy.AllowHosts("whole.example.com")), dir).Command(t.Context(), "true").Capture(); err != nil {
		t.Errorf("a policy that needs no look inside does not run: %v", err)
	}
}

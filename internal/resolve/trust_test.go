package resolve_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const (
	authority = "-----BEGIN CERTIFICATE-----\nrun\n-----END CERTIFICATE-----\n"
	system    = "-----BEGIN CERTIFICATE-----\nsystem\n-----END CERTIFICATE-----" // with no newline
	company   = "-----BEGIN CERTIFICATE-----\ncompany\n-----END CERTIFICATE-----\n"
)

// distribution is a machine with the files that a distribution has for certificates.
func distribution(files hostfs.Tree) *host.Snapshot {
	for _, p := range []string{"/usr/bin/true"} {
		files[p] = "exec"
	}
	files["/home/ana/project"], files["/proc"], files["/dev"], files["/tmp"] = "dir", "dir", "dir", "dir"
	return &host.Snapshot{OS: "linux", UID: 1000, User: "ana", Home: "/home/ana", Cwd: "/home/ana/project", Environ: []string{"PATH=/usr/bin"}, FS: files}
}

// N14: the certificates that programs inside find, on the distributions.
func TestTrust(t *testing.T) {
	p := policy.Workspace("/home/ana/project").With(policy.WithSecret("T@a.example"))
	debian := hostfs.Tree{"/etc/ssl/certs/ca-certificates.crt": "file", "/etc/ssl/certs/java/cacerts": "file", "/usr/lib/ssl/cert.pem": "-> /etc/ssl/certs/ca-certificates.crt"}
	caller := distribution(hostfs.Tree{"/etc/ssl/certs/ca-certificates.crt": "file", "/opt/company.pem": "file"})
	caller.Environ = append(caller.Environ, "NODE_EXTRA_CA_CERTS=/opt/company.pem", "SSL_CERT_FILE=/opt/company.pem", "CURL_CA_BUNDLE=/opt/other")
	files := map[string]bool{}
	for name, c := range map[string]struct {
		host    *host.Snapshot
		policy  policy.Policy
		bundles map[string]string
	}{
		"debian": {distribution(debian), p, map[string]string{"/etc/ssl/certs/ca-certificates.crt": system}},
		"fedora": {distribution(hostfs.Tree{
			"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": "file", "/etc/pki/tls/certs/ca-bundle.crt": "-> /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
			"/etc/pki/ca-trust/extracted/java/cacerts": "file", "/etc/pki/java/cacerts": "-> /etc/pki/ca-trust/extracted/java/cacerts",
		}), p, map[string]string{"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": system}},
		"alpine": {distribution(hostfs.Tree{"/etc/ssl/certs/ca-certificates.crt": "file", "/etc/ssl/cert.pem": "-> certs/ca-certificates.crt"}), p,
			map[string]string{"/etc/ssl/certs/ca-certificates.crt": system}},
		"arch": {distribution(hostfs.Tree{"/etc/ca-certificates/extracted/tls-ca-bundle.pem": "file", "/etc/ssl/certs/ca-certificates.crt": "-> ../../ca-certificates/extracted/tls-ca-bundle.pem", "/etc/ssl/cert.pem": "-> ../ca-certificates/extracted/tls-ca-bundle.pem"}), p,
			map[string]string{"/etc/ca-certificates/extracted/tls-ca-bundle.pem": system}},
		"none":      {distribution(hostfs.Tree{}), p, nil},
		"variables": {caller, p.With(policy.WithEnv("PIP_CERT", "/opt/mine.pem")), map[string]string{"/etc/ssl/certs/ca-certificates.crt": system, "/opt/company.pem": company}},
	} {
		file := filepath.Join("testdata/trust", name+".txt")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			r := resolve.Request{Workspace: "/home/ana/project", Backend: "native", Placeholders: map[string]string{"T": "x"},
				Trust: &resolve.Trust{Authority: authority, Bundles: c.bundles, Java: "java"}}
			got, err := resolve.Resolve(c.policy, r, c.host)
			if err != nil {
				t.Fatal(err)
			}
			goldentest.Compare(t, file, trustText(got))
		})
	}
	goldentest.OnlyThese(t, "testdata/trust", files)
}

// trustText is what a plan shows of certificates.
func trustText(p *plan.Plan) string {
	var b strings.Builder
	isTrust := func(o policy.Origin) bool { return o.Source == "built-in: the authority of this run" }
	for _, e := range p.Paths {
		if isTrust(e.Origin) {
			fmt.Fprintf(&b, "%s %s %s\n%s", e.Path, e.Access, e.Content, strings.TrimSuffix("  "+strings.ReplaceAll(strings.TrimSuffix(e.Text, "\n"), "\n", "\n  ")+"\n", "  "))
		}
	}
	for _, v := range p.Env {
		if slices.ContainsFunc(resolve.TrustVariables, func(t struct {
			Name string
			Adds bool
		}) bool {
			return t.Name == v.Name
		}) {
			fmt.Fprintf(&b, "%s=%s (%s)\n", v.Name, v.Value, v.Origin)
		}
	}
	for _, n := range p.Notices {
		if strings.Contains(n.Text, "inspected") {
			fmt.Fprintf(&b, "%s\n", n.Text)
		}
	}
	return b.String()
}

// Without mounts the certificates cannot be shown, which is reported. Without an authority nothing
// changes.
func TestNoTrust(t *testing.T) {
	s := distribution(hostfs.Tree{"/etc/ssl/certs/ca-certificates.crt": "file"})
	p := policy.Workspace("/home/ana/project").With(policy.WithSecret("T@a.example"))
	trust := &resolve.Trust{Authority: authority, Bundles: map[string]string{"/etc/ssl/certs/ca-certificates.crt": system}}
	for _, r := range []resolve.Request{{NoMounts: true, Backend: "landlock", Trust: trust}, {Backend: "native"}} {
		r.Workspace, r.Placeholders = "/home/ana/project", map[string]string{"T": "x"}
		got, err := resolve.Resolve(p, r, s)
		if err != nil {
			t.Fatal(err)
		}
		text := trustText(got)
		if strings.Contains(text, "/etc/ssl") || strings.Contains(text, "=") || strings.Contains(text, "without mounts") != r.NoMounts {
			t.Errorf("%s: %s", r.Backend, text)
		}
	}
}

package resolve

import (
	"fmt"
	"path"
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// This file makes programs inside trust the authority that inspects TLS in this run. The
// certificates of the system are shown with the authority's at their end, and variables name them
// for programs that bring their own. Nothing on the host changes.

// A Trust is what programs inside have to trust, and what the host has to be shown with it.
type Trust struct {
	// Authority is the authority's certificate in PEM.
	Authority string
	// Bundles are the contents of files with certificates in PEM, by their real paths: those of
	// BundleFiles, and those that variables of TrustVariables name. A file that is missing here
	// stays as it is.
	Bundles map[string]string
	// Java is a trust store for Java with the same certificates. Empty leaves Java's own.
	Java string
}

// BundleFiles are where systems have their trusted certificates as one file: Debian, Arch and
// NixOS, Fedora, Alpine and OpenSSL, openSUSE. Several of them may be links to one file.
var BundleFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ca-certificates/extracted/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
	"/etc/ssl/ca-bundle.pem",
	"/var/lib/ca-certificates/ca-bundle.pem",
}

// JavaFiles are where systems have the trust store of Java.
var JavaFiles = []string{"/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts", "/etc/ca-certificates/extracted/java-cacerts.jks"}

// TrustVariables name certificates for programs that do not look at the system's. Those that
// are true are trusted beside a program's own certificates, the others in place of them.
var TrustVariables = []struct {
	Name string
	Adds bool
}{
	{"SSL_CERT_FILE", false},      // OpenSSL, Go, Rust's native roots, Ruby
	{"CURL_CA_BUNDLE", false},     // a curl with certificates of its own
	{"GIT_SSL_CAINFO", false},     // a git with such a curl
	{"REQUESTS_CA_BUNDLE", false}, // Python's requests, and what is built on it: pip, aws, gcloud
	{"PIP_CERT", false},           // wins over settings of pip
	{"AWS_CA_BUNDLE", false},      // wins over settings of aws
	{"CARGO_HTTP_CAINFO", false},
	{"NODE_EXTRA_CA_CERTS", true}, // Node, npm, Bun
	{"DENO_CERT", true},
}

// certificates shows the system's bundles with the authority.
func (b *builder) certificates() {
	trust := b.req.Trust
	if trust == nil {
		return
	}
	if b.req.NoMounts {
		b.notice(plan.NoticeWarning, "without mounts programs cannot be shown the certificate of the run: they refuse the hosts that are inspected", trustOrigin)
		return
	}
	shown := map[string]bool{}
	show := func(file, text string) {
		real, err := b.follow(file)
		if err != nil || real.info.Kind != hostfs.File || shown[real.path] {
			return
		}
		shown[real.path] = true
		b.add(candidate{links: real.links, Path: plan.Path{Path: real.path, Kind: hostfs.File, Access: policy.Read, Content: plan.Text, Text: text, Origin: trustOrigin}})
	}
	for _, file := range BundleFiles {
		if text, ok := b.bundle(file); ok {
			show(file, text)
		}
	}
	if trust.Java == "" {
		return
	}
	for _, file := range JavaFiles {
		show(file, trust.Java)
	}
}

var trustOrigin = builtin("the authority of this run")

// bundle returns the certificates of a file of the host and the authority's. ok is false if
// they are not known.
func (b *builder) bundle(file string) (text string, ok bool) {
	real, err := b.fs.follow(path.Clean(file))
	if err != nil {
		return "", false
	}
	text, ok = b.req.Trust.Bundles[real.path]
	return joinPEM(text, b.req.Trust.Authority), ok
}

func joinPEM(bundle, authority string) string {
	if bundle != "" && bundle[len(bundle)-1] != '\n' {
		bundle += "\n"
	}
	return bundle + authority
}

// systemBundle returns the path of the system's certificates.
func (b *builder) systemBundle() (string, bool) {
	for _, file := range BundleFiles {
		if _, ok := b.bundle(file); ok {
			return file, true
		}
	}
	return "", false
}

// trustVariables makes programs with certificates of their own trust the authority. A variable
// that the caller has set, as in a company with an authority of its own, gets a file with both. One
// that the policy sets stays.
func (b *builder) trustVariables(vars map[string]plan.Var) {
	if b.req.Trust == nil || b.req.NoMounts {
		return
	}
	system, hasSystem := b.systemBundle()
	for _, v := range TrustVariables {
		old, set := vars[v.Name]
		switch _, known := b.bundle(old.Value); {
		case slices.ContainsFunc(b.policy.Env.Set, func(s policy.EnvSet) bool { return s.Name == v.Name }):
			b.notice(plan.NoticeInfo, fmt.Sprintf("env %s: the policy sets it, so programs that use it may refuse the hosts that are inspected", v.Name), old.Origin)
		case set && known && (!b.fixed || b.hasLine(trustFile(v.Name))): // a warm sandbox gets no more files
			vars[v.Name] = plan.Var{Name: v.Name, Value: trustFile(v.Name), Origin: trustOrigin}
		case set && path.IsAbs(old.Value):
			b.notice(plan.NoticeInfo, fmt.Sprintf("env %s: %s is not a file with certificates, so programs that use it may refuse the hosts that are inspected", v.Name, old.Value), old.Origin)
		case v.Adds:
			vars[v.Name] = plan.Var{Name: v.Name, Value: wellknown.AuthorityFile, Origin: trustOrigin}
		case hasSystem:
			vars[v.Name] = plan.Var{Name: v.Name, Value: system, Origin: trustOrigin}
		}
	}
	if !hasSystem {
		// To name the authority alone would take a program's own certificates away, and with them
		// all hosts that are not inspected.
		b.notice(plan.NoticeInfo, "the host has no file with trusted certificates, so only Node and Deno trust the hosts that are inspected; install ca-certificates", trustOrigin)
	}
}

// TrustFiles returns the files whose contents a Trust needs, as far as they exist. Their real
// paths are the keys of Trust.Bundles.
func TrustFiles(getenv func(string) (string, bool)) []string {
	files := slices.Clone(BundleFiles)
	for _, v := range TrustVariables {
		if file, ok := getenv(v.Name); ok && path.IsAbs(file) {
			files = append(files, path.Clean(file))
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// trustFile is where the sandbox has the certificates of a variable with the authority's.
func trustFile(variable string) string {
	return path.Join(path.Dir(wellknown.AuthorityFile), variable+".pem")
}

// showCertificates adds the files that the host does not have.
func (b *builder) showCertificates() {
	if b.req.Trust == nil {
		return
	}
	b.showText(wellknown.AuthorityFile, b.req.Trust.Authority, trustOrigin)
	for _, v := range TrustVariables {
		at := slices.IndexFunc(b.plan.Env, func(e plan.Var) bool { return e.Name == v.Name && e.Value == trustFile(v.Name) })
		if at < 0 {
			continue
		}
		value, _ := b.snap.Getenv(v.Name)
		if text, ok := b.bundle(value); ok {
			b.showText(trustFile(v.Name), text, trustOrigin)
		}
	}
}

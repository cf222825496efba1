package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/internal/inspection"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/secret"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// inspecting is what looks inside TLS for the commands of an engine. The commands of one
// session have the same authority and the same placeholders.
type inspecting struct {
	mu           sync.Mutex
	inspector    inspection.Inspector // nil until a command needs it
	placeholders map[string]string
	trust        *resolve.Trust
}

// withInspection adds to a request what a command needs whose network is inspected. It reads each secret once,
// for the shape of its placeholder.
func (e *Engine) withInspection(ctx context.Context, r resolve.Request, snap *host.Snapshot) (resolve.Request, error) {
	pol := e.Effective()
	if e.config.Inspect == nil || !pol.NeedsInspection() {
		return r, nil
	}
	n := &e.inspecting
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inspector == nil {
		if err := n.open(ctx, e, &pol, snap); err != nil {
			return r, fmt.Errorf("cloche: %w", err)
		}
	}
	r.Placeholders, r.Trust = n.placeholders, n.trust
	return r, nil
}

// inspector returns what ends TLS for the commands of a plan, or nil.
func (e *Engine) inspector(p *plan.Plan) inspection.Inspector {
	e.inspecting.mu.Lock()
	defer e.inspecting.mu.Unlock()
	if e.inspecting.inspector == nil || !p.Network.NeedsInspection() {
		return nil
	}
	return e.inspecting.inspector
}

func (n *inspecting) open(ctx context.Context, e *Engine, pol *policy.Policy, snap *host.Snapshot) error {
	reader := e.secretReader(pol, snap)
	placeholders, err := reader.Placeholders(ctx, pol.Secrets)
	if err != nil {
		return err
	}
	config := inspection.Config{Judge: egress.JudgeRequest, Record: egress.RecordRequest, Lenient: egress.LenientHost}
	origins := map[string]policy.Origin{}
	for i := range pol.Secrets {
		s := &pol.Secrets[i]
		if placeholders[s.Name] != "" {
			config.Secrets = append(config.Secrets, usableSecret(s, placeholders[s.Name], reader, snap))
			origins[s.Name] = s.Origin
		}
	}
	config.Misuse = egress.MisusedSecret(origins)
	inspector, err := e.config.Inspect(config)
	if err != nil {
		return err
	}
	trust, err := trustIn(inspector, snap)
	if err != nil {
		return err
	}
	n.inspector, n.placeholders, n.trust = inspector, placeholders, trust
	return nil
}

// secretReader reads values outside of the sandbox. It starts no program that a command could have changed.
func (e *Engine) secretReader(pol *policy.Policy, snap *host.Snapshot) *secret.Reader {
	writable := sync.OnceValues(func() ([]string, error) {
		p, err := e.Resolve(*pol, snap, resolve.Request{})
		if err != nil {
			return nil, err
		}
		return p.Writable(), nil
	})
	return &secret.Reader{
		Getenv: os.LookupEnv, Environ: os.Environ(),
		Expand: func(path string) (string, error) {
			return pathx.Expand(path, pathx.Vars{Home: snap.Home, Workspace: e.config.Workspace, Document: e.config.Document, Env: snap.Getenv})
		},
		Check: func(program string) error {
			paths, err := writable()
			return errors.Join(err, machine.CheckProgram(program, paths))
		},
	}
}

// usableSecret is a secret as an inspector needs it.
func usableSecret(s *policy.Secret, placeholder string, reader *secret.Reader, snap *host.Snapshot) inspection.Secret {
	hosts := plan.Network{Mode: policy.NetworkUser}
	for _, r := range s.HostRules() {
		hosts.Inspect = append(hosts.Inspect, plan.HostPort(r))
	}
	own := judge.NewNetwork(&hosts)
	sources := s.Sources()
	usable := inspection.Secret{
		Name: s.Name, Placeholder: placeholder,
		Value: func(ctx context.Context) ([]byte, error) { return reader.Read(ctx, s.Name, sources) },
		Hosts: func(host string, port uint16) bool { return own.Inspects(host, int(port)) },
	}
	for _, text := range s.In {
		kind, name, err := policy.SecretPlace(text)
		if err != nil {
			continue // the policy has been validated
		}
		usable.Places = append(usable.Places, map[string]inspection.Place{
			"header": {Header: name}, "query": {Query: name}, "json": {JSON: name},
		}[kind])
	}
	if s.Sign == "aws" {
		usable.AWS = awsKeys(snap)
	}
	return usable
}

// awsKeys are what the command has beside its secret access key. They are no secrets.
func awsKeys(snap *host.Snapshot) *inspection.AWS {
	variable := func(name string) (string, func(context.Context) ([]byte, error)) {
		value, _ := snap.Getenv(name)
		return value, func(context.Context) ([]byte, error) { return []byte(value), nil }
	}
	keys := &inspection.AWS{}
	keys.KeyPlaceholder, keys.KeyID = variable("AWS_ACCESS_KEY_ID")
	keys.TokenPlaceholder, keys.Token = variable("AWS_SESSION_TOKEN")
	return keys
}

// trustIn collects the certificates that programs trust outside.
func trustIn(i inspection.Inspector, snap *host.Snapshot) (*resolve.Trust, error) {
	t := &resolve.Trust{Authority: string(i.CertificatePEM()), Bundles: map[string]string{}}
	var all strings.Builder
	for _, file := range resolve.TrustFiles(snap.Getenv) {
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			continue // not on this system
		}
		if t.Bundles[real] != "" {
			continue
		}
		text, err := os.ReadFile(real)
		if err != nil || !strings.Contains(string(text), "BEGIN CERTIFICATE") {
			continue
		}
		t.Bundles[real] = string(text)
		if all.Len() == 0 {
			all.Write(text) // the system's: the lists of others are copies of it
		}
	}
	for _, file := range resolve.JavaFiles {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		store, err := i.JavaTrustStore([]byte(all.String()))
		if err != nil {
			return nil, fmt.Errorf("the certificates of Java: %w", err)
		}
		t.Java = string(store)
		break
	}
	return t, nil
}

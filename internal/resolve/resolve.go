// Package resolve turns a policy into a plan: it expands the paths, follows their symbolic
// links, adds the rules to cloche's own baseline and resolves conflicts between them. It is
// pure: the machine is a [host.Snapshot], so the same policy on the same snapshot gives the
// same plan, byte for byte.
//
// # Layers and rules
//
// Layers, lowest first: built-in baseline, presets, presets for tools, user file, project
// file, stored grants, command (options, --policy, Go), grants of this session, the run-time
// switch. For a single value the highest layer wins. For paths:
//
//  1. Paths are expanded (~, $VAR, urn:cloche:…), made absolute, and their
//     symbolic links followed component by component, as the kernel does.
//  2. For one path the higher layer wins; within a layer, the stricter rule.
//  3. Between paths the longest match wins, so deny inside allow and allow inside
//     deny both work.
//  4. Rules of an untrusted project file are applied last and can only take away,
//     on the real paths: a link out of the project gains nothing.
//  5. Lines that repeat the line around them are dropped.
//  6. cloche's own configuration, data, state and cache, and the policy files in
//     force, are locked: no rule opens them. Where the command could create such a
//     folder first, cloche creates it, so that it can be hidden.
//  7. A pattern that protects does not apply below the folders of
//     paths.protect_unless_under. An exemption reaches patterns of its own layer
//     and of lower ones, never those that hide, and an untrusted file has none.
//
// A bind or persisted folder may have a target that the host does not have. Nothing is created
// on the host for it: the folder around it is shown as an empty folder with each of its
// entries bound separately. Only two kinds of folders are created on the host, both named by a
// trusted rule: a folder of paths.write with create: true, if its parent belongs to the
// caller, and the mount point of a folder that a preset for a tool persists inside one that it
// makes writable.
//
// A path that is hidden or protected inside a writable folder must keep its name. Plan.Pins
// lists the folders between the two. A backend with mounts makes each of them a mount point,
// because a mount point cannot be renamed.
//
// # Cost
//
// Every run pays for every rule, and presets have hundreds. So presets are compiled into the
// program as data (policy/compiled.go), nothing below a missing folder is looked up, and a
// folder that lacked several names is listed once (hostfs.Lister). Nothing is kept between
// plans.
package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Request is what a plan is made for, besides the policy.
type Request struct {
	// Workspace is the folder the command works on.
	Workspace string
	// RealWorkspace: no symbolic link may be on the way to the workspace.
	RealWorkspace bool
	// Dir is the working folder, a host path; empty is the workspace.
	Dir string
	// Document is the folder of the document an editor works on, if any.
	Document string
	// Name and Args are the command; with an empty Name the plan has none.
	Name string
	Args []string
	// ExtraFiles is how many descriptors, from 3 on, the command gets.
	ExtraFiles int
	// Terminal gives the command a controlling terminal.
	Terminal bool
	// Programs are further programs that have to be visible.
	Programs []string
	// PolicyFiles are the files that the policy was read from. The command can never write
	// them.
	PolicyFiles []string
	// OwnPrograms are files that are executed outside of any sandbox. The command
	// cannot change them either.
	OwnPrograms []string
	// Asks: a person is asked about denials.
	Asks bool
	// Backend is the name of the backend, which the command can see. It is empty for a plan
	// that is only shown, and for a command without a sandbox.
	Backend string
	// NoMounts: the backend cannot show a file at another path than the host's.
	NoMounts bool
	// Files are texts by path that are shown to the command as files. The host does not have
	// these files.
	Files map[string]string
	// Placeholders are what the command has in place of its secrets, by their names. A secret that
	// is missing here has no value. Nil is for a plan that is only shown.
	Placeholders map[string]string
	// Trust makes programs inside trust the authority that inspects TLS. Nil if nothing does.
	Trust *Trust
	// Notices come before those of the plan.
	Notices []plan.Notice
	// Unchanged: the caller knows that the names which the layout was made from
	// ([Layout.Looked]) still lead to the same files. It is for [Layout.Command].
	Unchanged bool
}

// Resolve makes the plan. All errors that it finds are joined.
func Resolve(p policy.Policy, r Request, s *host.Snapshot) (*plan.Plan, error) {
	return newBuilder(p, r, s).resolve()
}

func newBuilder(p policy.Policy, r Request, s *host.Snapshot) *builder {
	p = claimed(p)
	fs := newTree(s.FS, slices.Concat([]string{s.Home}, s.Homes, s.Others)...)
	b := &builder{policy: p, req: r, snap: s, fs: fs, variables: map[string]string{}, candidates: make([]candidate, 0, candidateRoom), plan: &plan.Plan{
		Privileged: p.Privileged,
		Strict:     p.Require == policy.Strict,
		Denials:    p.Denials,
		Notices:    slices.Clone(r.Notices),
	}}
	return b
}

func (b *builder) resolve() (*plan.Plan, error) {
	if !b.workspace() {
		return nil, errors.Join(b.errs...)
	}
	if b.policy.Disabled {
		return b.unconfined()
	}
	if b.policy.Privileged && b.snap.UID != 0 {
		b.fail(&PolicyError{Rule: "allow_privileged", Origin: b.policy.PrivilegedOrigin,
			Reason: fmt.Sprintf("is for root, and this is user %d, who has no privileges to keep", b.snap.UID), Fix: "remove it, or run cloche as root"})
	}
	b.review()
	b.link()
	b.baseline()
	b.exempt()
	b.pathRules()
	b.foundFiles()
	b.binds()
	b.persist()
	b.secrets()
	b.certificates()
	b.ownFiles()
	b.settle()
	b.checkLinks()
	b.grantSockets()
	b.bus()
	b.hideSockets()
	b.envFrom = len(b.plan.Notices)
	b.environment()
	b.envTo = len(b.plan.Notices)
	b.network()
	b.carryAbstract()
	b.limits()
	b.reachPrograms()
	b.command()
	b.placeLinks()
	if b.forLayout {
		b.settled = slices.Clone(b.plan.Paths)
	}
	b.makeMountPoints()
	b.remap()
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	slices.SortFunc(b.plan.Paths, byPath)
	b.tellCommand()
	return b.plan, nil
}

// review puts the policy's review into the plan.
func (b *builder) review() {
	if b.policy.Review == "" {
		return
	}
	b.plan.Review = &plan.Review{Name: b.policy.Review, Origin: b.policy.ReviewOrigin}
	if b.policy.Privileged {
		b.fail(&PolicyError{Rule: "review", Origin: b.policy.ReviewOrigin,
			Reason: "with allow_privileged the command could mount, and change files outside of its review", Fix: "remove one of them"})
	}
}

// claimed returns the policy with every rule that has no origin, or claims to be built in,
// marked as the caller's: built-in rules are trusted more than any rule of a policy may be. It
// does not change the caller's policy, and copies a list only if it has such a rule.
func claimed(p policy.Policy) policy.Policy {
	p.Paths = claimedRules(p.Paths, func(r *policy.PathRule) *policy.Origin { return &r.Origin })
	p.Exempt = claimedRules(p.Exempt, func(r *policy.Exemption) *policy.Origin { return &r.Origin })
	p.Binds = claimedRules(p.Binds, func(r *policy.Bind) *policy.Origin { return &r.Origin })
	p.Persist = claimedRules(p.Persist, func(r *policy.Persist) *policy.Origin { return &r.Origin })
	p.Network.Allow = claimedRules(p.Network.Allow, func(r *policy.HostRule) *policy.Origin { return &r.Origin })
	p.Network.Deny = claimedRules(p.Network.Deny, func(r *policy.HostRule) *policy.Origin { return &r.Origin })
	p.Network.Publish = claimedRules(p.Network.Publish, func(r *policy.PortRule) *policy.Origin { return &r.Origin })
	p.Network.Forward = claimedRules(p.Network.Forward, func(r *policy.PortRule) *policy.Origin { return &r.Origin })
	p.Sockets = claimedRules(p.Sockets, func(r *policy.Socket) *policy.Origin { return &r.Origin })
	p.Secrets = claimedRules(p.Secrets, func(s *policy.Secret) *policy.Origin { return &s.Origin })
	p.Bus.Rules = claimedRules(p.Bus.Rules, func(r *policy.BusRule) *policy.Origin { return &r.Origin })
	return p
}

func claimedRules[T any](rules []T, origin func(*T) *policy.Origin) []T {
	copied := false
	for i := range rules {
		if origin(&rules[i]).Layer != policy.LayerBuiltin {
			continue
		}
		if !copied {
			rules, copied = slices.Clone(rules), true
		}
		o := origin(&rules[i])
		o.Layer, o.Source = policy.LayerCommand, cmp.Or(o.Source, "Go API")
	}
	return rules
}

// byPath orders lines by their path.
func byPath(a, b plan.Path) int { return strings.Compare(a.Path, b.Path) }

// A builder is the state of one Resolve. Until remap, paths inside are the same as on the
// host.
type builder struct {
	policy policy.Policy
	req    Request
	snap   *host.Snapshot
	fs     *tree
	plan   *plan.Plan
	vars   pathx.Vars
	// homes are further home folders in which secrets are hidden.
	homes []string
	// candidates are all lines of the rules and the baseline.
	candidates []candidate
	links      []link
	errs       []error
	implied    bool // the current rule is derived from another rule
	// exempted are the exempt folders for the patterns of each layer.
	exempted map[policy.Layer][]string

	// What a Layout needs to know: the lines before remap, which notices are about the
	// environment, the variables that were used with their values, and whether the program
	// needed a line of its own.
	forLayout      bool
	settled        []plan.Path
	envFrom, envTo int
	variables      map[string]string
	reached        bool
	// secretTexts are files with placeholders that the host does not have.
	secretTexts []plan.Path
	fromFolder  bool // a variable's value is relative to the working folder
	fixed       bool // the lines belong to a Layout and must not change
}

// getenv returns a variable of the caller, and records that it was used.
func (b *builder) getenv(name string) (string, bool) {
	value, ok := b.snap.Getenv(name)
	b.variables[name] = value
	return value, ok
}

// candidateRoom is the number of candidates on most machines.
const candidateRoom = 48

// A candidate is a line that may become part of the plan.
type candidate struct {
	plan.Path
	// locked lines protect cloche itself: nothing overrides them. A line that only lowers has
	// no effect if other rules give less access anyway.
	locked, lowers bool
	// links are the symbolic links that the rule's path goes through.
	links []link
}

func (b *builder) fail(err error) { b.errs = append(b.errs, err) }

func (b *builder) notice(k plan.NoticeKind, text string, o policy.Origin) {
	b.plan.Notices = append(b.plan.Notices, plan.Notice{Kind: k, Text: text, Origin: o})
}

// follow resolves a path and records the links on its way.
func (b *builder) follow(p string) (realPath, error) {
	r, err := b.fs.follow(p)
	if err == nil {
		b.links = append(b.links, r.links...)
	}
	return r, err
}

// workspace resolves the workspace and sets the variables for path forms.
func (b *builder) workspace() bool {
	r, err := b.follow(b.req.Workspace)
	var reason, fix string
	switch tree := kernelTree(r.path); {
	case err != nil:
		reason = err.Error()
	case r.denied:
		reason = "permission denied"
	case r.missing():
		reason, fix = "no such folder", "create it, or name another with --workspace"
	case r.info.Kind != hostfs.Dir:
		reason, fix = "is a "+kindName(r.info.Kind)+", not a folder", "name a folder with --workspace"
	case b.req.RealWorkspace && r.path != b.req.Workspace:
		reason, fix = "was replaced by a link to "+r.path, "run the command again"
	case tree != "":
		reason, fix = "lies in the host's "+tree+", which is never opened to a command", "name another folder with --workspace"
	}
	if reason != "" {
		b.fail(&PolicyError{Rule: "workspace", Path: b.req.Workspace, Reason: reason, Fix: fix})
		return false
	}
	b.plan.Workspace, b.plan.Inside, b.plan.Home = r.path, r.path, b.realHome()
	cwd := b.req.Dir
	if cwd == "" {
		cwd = r.path
	}
	b.vars = pathx.Vars{
		Home: b.snap.Home, Cwd: cwd, Workspace: r.path, Document: b.req.Document, Self: b.snap.Self,
		Env: b.getenv,
	}
	return true
}

// realHome returns the caller's home folder with links resolved, or as the snapshot has it if
// it cannot be resolved.
func (b *builder) realHome() string {
	if r, err := b.fs.follow(b.snap.Home); err == nil && b.snap.Home != "" {
		return r.path
	}
	return b.snap.Home
}

// unconfined returns the plan of a disabled policy: everything as the caller has it.
func (b *builder) unconfined() (*plan.Plan, error) {
	off := policy.Origin{Layer: policy.LayerBuiltin, Source: "enabled: false"}
	b.plan.Paths = []plan.Path{{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Write, Origin: off}}
	b.plan.Network = plan.Network{Mode: policy.NetworkHost, Origin: off}
	b.plan.Strict = false
	for _, kv := range b.snap.Environ {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			b.plan.Env = append(b.plan.Env, plan.Var{Name: name, Value: value, Origin: off})
		}
	}
	for _, set := range b.policy.Env.Set {
		b.plan.Env = append(b.plan.Env, plan.Var{Name: set.Name, Value: set.Value, Origin: set.Origin})
	}
	b.command()
	return b.plan, errors.Join(b.errs...)
}

package difftest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/mcpserver"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// agree compares what else is said about paths with what check says: by the session's
// methods, in the list that explain prints, in the record of refusals and by MCP.
func (f *fuzzer) agree(seed uint64, r *rand.Rand, layers []layer, ops []op, res *results, s *cloche.Session) {
	if err := f.world.reset(); err != nil { // check was asked before the operations
		f.t.Fatal(err)
	}
	p := explained(s)
	files := judge.NewFiles(p)
	for i, o := range ops {
		d := &res.checks[i]
		may := s.IsReadable
		if needs(o) == policy.Write {
			may = s.IsWritable
		}
		if may(o.Path) != d.Allowed {
			f.report(seed, layers, "%v: check says %v (%s), the session's method %v", o, d.Allowed, d.Rule, !d.Allowed)
		}
		for _, way := range o.Ways {
			if text := listed(p, files, way); text != "" {
				f.report(seed, layers, "%v: explain: %s", o, text)
			}
		}
		if text := recordDiffers(p, files, o, d, res.denied); text != "" {
			f.report(seed, layers, "%v: the record: %s", o, text)
		}
	}
	if f.instead == nil {
		f.askMCP(seed, r, layers, ops, res, s)
	}
}

// listed says where the plan's list of paths and patterns differs from its judge.
func listed(p *plan.Plan, files *judge.Files, inside string) string {
	v, line := files.Path(inside), plan.Path{}
	for _, e := range p.Paths {
		if pathx.Within(e.Path, inside) && len(e.Path) >= len(line.Path) {
			line = e
		}
	}
	if !pathx.IsGlob(v.Subject) {
		if v.Access != line.Access && !judge.HasDevice(&line, inside) && !absent(p, inside) {
			return fmt.Sprintf("%s is %s by its line %s, and %s by %s %s", inside, line.Access, line.Path, v.Access, v.Rule, v.Subject)
		}
		return ""
	}
	for _, g := range p.Globs {
		if g.Pattern == v.Subject && g.Access == v.Access && g.Access < line.Access {
			return ""
		}
	}
	return fmt.Sprintf("%s is %s by the pattern %s, which is not in the list, or lowers nothing", inside, v.Access, v.Subject)
}

// absent reports whether a rule is about a path that is not there, or one above: such a
// rule is in a list of its own.
func absent(p *plan.Plan, inside string) bool {
	return slices.ContainsFunc(p.AbsentLines(), func(e plan.Path) bool { return pathx.Within(e.Path, inside) })
}

// recordDiffers says where the refusals of an operation name another rule than the judge
// that check asks, or check itself.
func recordDiffers(p *plan.Plan, files *judge.Files, o op, d *plan.Decision, denied []plan.Denial) string {
	for i := range denied {
		dn := &denied[i]
		if dn.Op != recorded[o.Do] || !slices.Contains(o.Ways, dn.Path) {
			continue
		}
		v := files.Path(dn.Path)
		pin, pinned := files.Pinned(dn.Path)
		if pinned = pinned && (o.Do == "rename" || o.Do == "unlink") && v.Access == policy.Write; pinned {
			v = pin // which check does not know: a file that is opened by itself can be written, and not removed
		}
		places := judge.Places(p, realPath(o.Path))
		alone := len(places) == 1 && places[0] == dn.Path
		git := dn.Origin.Source == "git directories are guarded"                // which has the last word
		if git && !d.Allowed && d.Rule != dn.Rule && o.Do == "write" && alone { // check is not asked about other changes
			return fmt.Sprintf("%s is refused by %s, check says %s (%s)", dn.Path, dn.Because(), d.Rule, d.Origin)
		}
		if !git && (dn.Rule != v.Rule || dn.Subject != v.Subject || dn.Origin != v.Origin) {
			return fmt.Sprintf("%s is refused by %s, and judged by %s %s (%s); check says %s (%s)", dn.Path, dn.Because(), v.Rule, v.Subject, v.Origin, d.Rule, d.Origin)
		}
		if !d.Allowed && alone && !pinned && d.Origin != dn.Origin {
			return fmt.Sprintf("%s is refused by %s, check says %s (%s)", dn.Path, dn.Because(), d.Rule, d.Origin)
		}
	}
	return ""
}

// askedOfMCP is how many operations of a case MCP is asked about: it makes a plan for each.
const askedOfMCP = 3

// askMCP compares check_access with check. An agent names paths as its commands see them.
func (f *fuzzer) askMCP(seed uint64, r *rand.Rand, layers []layer, ops []op, res *results, s *cloche.Session) {
	p := explained(s)
	merged, err := f.policy(layers)
	if err != nil {
		f.t.Fatal(err)
	}
	snap := *f.snapshot
	config := cli.MCP{Policy: merged, Workspace: f.world.ws, Dir: f.world.ws,
		DataDir: f.snapshot.Dirs.Data, Kept: func() ([]grant.Grant, error) { return nil, nil }, Messages: io.Discard,
		Options: []cloche.Option{cloche.WithRegistry(f.registry), cloche.WithWorkspace(f.world.ws), cloche.WithHost(&snap)}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ours, theirs := mcp.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- mcpserver.Serve(ctx, theirs, config) }()
	connected := make(chan *mcp.ClientSession, 1)
	go func() {
		if c, err := mcp.NewClient(&mcp.Implementation{Name: "difftest"}, nil).Connect(ctx, ours, nil); err == nil {
			connected <- c
		}
	}()
	var client *mcp.ClientSession
	select {
	case client = <-connected:
	case err := <-ended: // the transport notices nothing
		f.report(seed, layers, "MCP: %v", err)
		return
	}
	defer func() {
		client.Close()
		if err := <-ended; err != nil {
			f.report(seed, layers, "MCP: %v", err)
		}
	}()
	for range askedOfMCP {
		i := r.IntN(len(ops))
		o, d := ops[i], &res.checks[i]
		real := realPath(o.Path)
		at := real
		if places := judge.Places(p, real); len(places) > 0 {
			at = places[0]
		} else if shown, ok := p.HostPath(real); ok && shown != real {
			continue // the agent would name another file
		}
		out, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "check_access", Arguments: map[string]string{"action": string(o.action()), "target": at}})
		if err != nil {
			f.report(seed, layers, "%v: check_access %s: %v", o, at, err)
			continue
		}
		text, err := json.Marshal(out.StructuredContent)
		var said struct {
			Allowed bool
			Rule    string
		}
		if err == nil {
			err = json.Unmarshal(text, &said)
		}
		f.asked++
		switch {
		case err != nil || out.IsError:
			f.report(seed, layers, "%v: check_access %s: %v %s", o, at, err, text)
		case said.Allowed != d.Allowed:
			f.report(seed, layers, "%v: check says %v (%s), check_access of %s says %v (%s)", o, d.Allowed, denials.RuleFrom(d), at, said.Allowed, said.Rule)
		case d.Allowed && said.Rule != denials.RuleFrom(d):
			f.report(seed, layers, "%v: check names the rule %s, check_access %s", o, denials.RuleFrom(d), said.Rule)
		}
	}
}

// explained is the plan of a session that has one.
func explained(s *cloche.Session) *plan.Plan {
	p, err := s.Explain()
	if err != nil {
		panic(err)
	}
	return p
}

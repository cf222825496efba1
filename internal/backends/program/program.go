// Package program contains the common parts of the backends that compile plans into system
// calls: the first steps, which install descriptors, the last ones, which drop privileges and
// execute cloche's init, and the trial run of a program.
package program

import (
	"context"
	"fmt"
	"os"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Prober finds out whether a backend works on this machine, by making a sandbox.
type Prober func(*host.Snapshot) host.Probe

// Available turns the outcome of a probe into the result of Backend.Available.
func Available(name string, p host.Probe) error {
	switch p.Outcome {
	case host.Yes:
		return nil
	case host.No:
		return &backend.UnavailableError{Backend: name, Probe: p}
	default:
		return fmt.Errorf("backend %s: %w: %s", name, backend.ErrInconclusive, p.Reason)
	}
}

// Descriptors are the numbers of a program's own descriptors.
type Descriptors struct {
	// Status and Lifeline are for the init, which is Init.
	Status, Lifeline int
	Init             sysprog.Arg
	// More are the further files of a launch.
	More []sysprog.Arg
	// Free is the first free number after the command's descriptors and these.
	Free int
}

// Install adds the files of the launch and the steps that install the command's descriptors,
// the init's and further ones at their numbers. All others are closed.
func Install(b sysprog.Block, p *sysprog.Program, l *backend.Launch, extraFiles int, further ...backend.File) Descriptors {
	n := 3 + extraFiles
	own := make([]sysprog.Arg, n)
	for i := range own {
		own[i] = p.AddFile(fmt.Sprintf("descriptor %d", i))
	}
	more := addInitFiles(p, l)
	for _, f := range further {
		l.Files = append(l.Files, f)
		more = append(more, p.AddFile("further file"))
	}
	l.FirstFD = n
	b.CloseOthers()
	// The command's descriptors are moved to their numbers. cloche's own are first moved out
	// of the way and then to fixed numbers, because the init gets two of them as arguments.
	moved := b.Install(own, more...)
	for i := range moved {
		moved[i] = b.MoveAbove(moved[i], n+len(moved))
	}
	for i := range moved {
		b.Dup3(moved[i], n+i)
	}
	d := Descriptors{Status: n, Lifeline: n + 1, Init: sysprog.FD(n + 2), Free: n + len(moved)}
	for i := range moved[2:] {
		fd := sysprog.FD(n + 2 + i)
		b.Call("fcntl", fd, sysprog.Named(2, "F_SETFD"), sysprog.Named(1, "FD_CLOEXEC"))
		if i > 0 {
			d.More = append(d.More, fd)
		}
	}
	return d
}

// addInitFiles adds the init's own files, in the order of their numbers. On a platform without
// an init, a plan can be compiled but not run.
func addInitFiles(p *sysprog.Program, l *backend.Launch) []sysprog.Arg {
	elf, _ := initprog.Binary()
	l.Files = append(l.Files, backend.File{Kind: builtin.InitStatus}, backend.File{Kind: builtin.Lifeline}, backend.File{Kind: builtin.Program, Data: elf})
	return []sysprog.Arg{p.AddFile("init-status"), p.AddFile("lifeline"), p.AddFile("program")}
}

// InitConfig returns the init's configuration for a plan, except for the parts that depend on
// the backend.
func InitConfig(p *plan.Plan, d Descriptors) initprog.Config {
	cmd := p.Command
	return initprog.Config{
		StatusFD: d.Status, LifelineFD: d.Lifeline, Terminal: cmd.Terminal, KeepFDs: cmd.ExtraFiles,
		Processes: p.Limit(plan.LimitProcesses), OpenFiles: p.Limit(plan.LimitOpenFiles), FileSize: p.Limit(plan.LimitFileSize),
		Path: cmd.Path, Args: cmd.Args,
	}
}

// Execute adds the last step, which executes the init.
func Execute(p *sysprog.Program, d Descriptors, c initprog.Config) {
	p.For(policy.Origin{}, "execute the init").Execveat(d.Init, c.Argv("cloche-init")...)
}

// keptByRoot are the capabilities over files that a command of root keeps: CAP_CHOWN,
// CAP_DAC_OVERRIDE, CAP_FOWNER. Without them root could not use a folder of another user. They
// override no mount and no Landlock rule.
const keptByRoot = 1<<0 | 1<<1 | 1<<3

// DropCapabilities permanently drops all capabilities; root keeps those over files. Dropping
// one from the bounding set may fail with the given errors.
func DropCapabilities(p *sysprog.Program, uid int, ignore ...sysprog.Errno) {
	LimitCapabilities(p, uid, ignore...)
	keep := kept(uid)
	p.For(policy.Origin{}, "drop capabilities").Capset(keep, keep, 0)
}

// LimitCapabilities does the same, but with effect at execve: a process without ambient and
// inheritable capabilities then has none or, if it is root, those of the bounding set.
func LimitCapabilities(p *sysprog.Program, uid int, ignore ...sysprog.Errno) {
	none := policy.Origin{}
	p.For(none, "drop capabilities from the bounding set").Ignoring(ignore...).DropBounding(kept(uid))
	p.For(none, "drop capabilities").ClearAmbient()
}

func kept(uid int) uint64 {
	if uid == 0 {
		return keptByRoot
	}
	return 0
}

// ProbePlan returns a plan with one of every part of a sandbox. A machine that can enforce it
// can enforce real plans.
func ProbePlan() *plan.Plan {
	return &plan.Plan{
		Command: &plan.Command{Path: "/", Args: []string{"probe"}, Dir: "/"},
		Paths: []plan.Path{
			{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
			{Path: "/dev", Kind: hostfs.Dir, Access: policy.Write, Content: plan.Devices},
			{Path: "/proc", Kind: hostfs.Dir, Access: policy.Write, Content: plan.Proc},
			{Path: "/usr", Kind: hostfs.Dir, Content: plan.Empty, Origin: policy.Origin{Layer: policy.LayerCommand}},
		},
	}
}

// Trial runs a program without its last step, which would execute the init. Every file is the
// null device. It reports whether all steps worked.
func Trial(ctx context.Context, p *sysprog.Program, o sysprog.Options) (ok bool, err error) {
	p.Steps = p.Steps[:len(p.Steps)-1]
	p.For(policy.Origin{}, "end the probe").Exit(0)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer null.Close()
	for range p.Files {
		o.Files = append(o.Files, int(null.Fd()))
	}
	child, err := sysprog.Run(ctx, p, o)
	if err != nil {
		return false, err
	}
	status, err := child.Wait()
	return status.ExitStatus() == 0, err
}

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// noFD is the value of --report-fd where it was not given.
const noFD = -1

// reportFlags say where the report of a run goes.
type reportFlags struct {
	file string
	fd   int
}

// A runReport is how one invocation of run or shell went. Its fields may grow
// and do not change their meaning.
type runReport struct {
	// Status is the exit status of cloche.
	Status int `json:"status"`
	// Ran: the command was started.
	Ran       bool     `json:"ran"`
	Command   []string `json:"command"`
	Workspace string   `json:"workspace,omitempty"`
	// Review has what the command wrote.
	Review string `json:"review,omitempty"`
	// Messages are the lines that cloche would have said in words.
	Messages []string `json:"messages,omitempty"`
	// Refusal is why it did not run, if it did not.
	Refusal *cloche.Refusal `json:"refusal,omitempty"`
	// Result is how the command went, if it ran.
	Result *cloche.Result `json:"result,omitempty"`
}

// setResult takes a result over, without the notices that are as expected: most
// machines lack most of what the presets hide.
func (r *runReport) setResult(result *cloche.Result) {
	if result == nil {
		return
	}
	own := *result
	own.Notices = nil
	for _, n := range result.Notices {
		if n.Kind != plan.NoticeSkipped || n.Origin.Layer >= policy.LayerUser {
			own.Notices = append(own.Notices, n)
		}
	}
	r.Result = &own
}

// MarshalJSON adds to each denial the options that would allow it.
func (r runReport) MarshalJSON() ([]byte, error) {
	type plain runReport
	type result struct {
		*cloche.Result
		Denied []reportedDenial `json:"denied,omitempty"`
	}
	out := struct {
		plain
		Result *result `json:"result,omitempty"`
	}{plain: plain(r)}
	if r.Result != nil {
		out.Result = &result{Result: r.Result}
		for i := range r.Result.Denied {
			out.Result.Denied = append(out.Result.Denied, newReportedDenial(&r.Result.Denied[i]))
		}
	}
	return json.Marshal(out)
}

// A reportedDenial is a denial with the options of `cloche run` that would allow it. The
// order of the fields is that of the first version.
type reportedDenial struct {
	Op       plan.Op       `json:"op"`
	Path     string        `json:"path,omitempty"`
	Host     string        `json:"host,omitempty"`
	Addr     netip.Addr    `json:"addr,omitzero"`
	Port     int           `json:"port,omitempty"`
	Protocol string        `json:"protocol,omitempty"`
	Method   string        `json:"method,omitempty"`
	Pid      int           `json:"pid,omitempty"`
	Program  string        `json:"program,omitempty"`
	Argv     []string      `json:"argv,omitempty"`
	Access   policy.Access `json:"access"`
	Rule     string        `json:"rule"`
	Subject  string        `json:"subject"`
	Reason   string        `json:"reason,omitempty"`
	Origin   policy.Origin `json:"origin"`
	At       string        `json:"at,omitempty"`
	Outside  bool          `json:"refused_outside,omitempty"`
	Count    int           `json:"count"`
	Time     time.Time     `json:"time,omitzero"`
	Fix      []policy.Edit `json:"fix,omitempty"`
	Grant    string        `json:"grant,omitempty"`
	Instead  string        `json:"instead,omitempty"`
	Narrower string        `json:"grant_if_made_outside,omitempty"`
}

func newReportedDenial(d *plan.Denial) reportedDenial {
	out := reportedDenial{
		Op: d.Op, Path: d.Path, Host: d.Host, Addr: d.Addr, Port: d.Port, Protocol: d.Protocol, Method: d.Method,
		Pid: d.Pid, Program: d.Program, Argv: d.Argv, Access: d.Access, Rule: d.Rule, Subject: d.Subject, Reason: d.Reason,
		Origin: d.Origin, At: d.At, Outside: d.Outside, Count: d.Count, Time: d.Time, Fix: d.Fix, Grant: runoption.Text(d.Fix...), Instead: d.NoFix,
	}
	if d.Narrower != nil {
		out.Narrower = runoption.Text(*d.Narrower)
	}
	return out
}

// A reportTarget is where a report is written; nil writes none.
type reportTarget struct {
	to   io.Writer
	name string
	file *os.File // to close, if cloche opened it
}

// open opens the target before the command runs: afterwards the command could
// have put a link of its own in the file's place, and cloche, which is not
// confined, would follow it.
func (f reportFlags) open(a *app) (*reportTarget, error) {
	switch {
	case f.file != "" && f.fd != noFD:
		return nil, errors.New("--report and --report-fd are both given; keep one of them")
	case f.file != "":
		file, err := os.OpenFile(f.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|openReport, 0o600)
		if err != nil {
			return nil, fmt.Errorf("--report %s: %w%s", f.file, err, reportHint(f.file))
		}
		return &reportTarget{to: file, name: f.file, file: file}, nil
	case f.fd != noFD:
		file, err := inheritedFile(f.fd)
		if err != nil {
			return nil, fmt.Errorf("--report-fd %d: %w", f.fd, err)
		}
		return &reportTarget{to: file, name: fmt.Sprintf("descriptor %d", f.fd)}, nil
	case a.json:
		return &reportTarget{to: a.err, name: "standard error"}, nil
	}
	return nil, nil
}

// reportHint says what is in the place of a report that cannot be opened, and what to do.
func reportHint(file string) string {
	info, err := os.Lstat(file)
	switch {
	case err != nil:
		return ""
	case info.Mode()&os.ModeSymlink != 0:
		return "; it is a symbolic link, which is not followed: name its target, or a descriptor, such as --report-fd 1"
	case info.Mode()&os.ModeNamedPipe != 0:
		return "; nothing reads from this FIFO: start the reader first"
	}
	return ""
}

// write writes the report as one line.
func (t *reportTarget) write(r runReport) error {
	if t == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	_, err = io.WriteString(t.to, plainJSON(string(line))+"\n")
	if t.file != nil {
		err = errors.Join(err, t.file.Close())
	}
	if err != nil {
		return fmt.Errorf("the report to %s: %w", t.name, err)
	}
	return nil
}

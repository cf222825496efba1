package initprog

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
)

func TestArgv(t *testing.T) {
	c := Config{
		StatusFD: 5, LifelineFD: 6, Terminal: true, KeepFDs: 2,
		Processes: 10, OpenFiles: -1, FileSize: -7, Path: "/bin/sh", Args: []string{"sh", "-c", "true"},
	}
	want := []string{"/i", "5", "6", "1", "2", "10", "-1", "-1", "--", "/bin/sh", "sh", "-c", "true"}
	if got := c.Argv("/i"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	c.Args = nil
	if got := c.Argv("/i"); got[len(got)-1] != "/bin/sh" || len(got) != 11 {
		t.Errorf("no Args: %q", got)
	}
}

func TestReadRecord(t *testing.T) {
	r := bytes.NewReader([]byte{
		6, 0, 0, 0, 13, 0, 4, 0,
		3, 0, 0, 0, 0, 1, 0, 0,
		9, 0, 0, 0, 0, 0, 0, 0,
		1, 0, 0,
	})
	rec, err := ReadRecord(r)
	if err != nil || rec.Type != SetupFailed || rec.Step() != StepSignals || rec.Errno() != 13 {
		t.Errorf("setup failed: %+v %v", rec, err)
	}
	if rec, err = ReadRecord(r); err != nil || rec != (Record{Exited, 256}) {
		t.Errorf("exited: %+v %v", rec, err)
	}
	if _, err = ReadRecord(r); err == nil {
		t.Error("an unknown type was accepted")
	}
	if _, err = ReadRecord(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut record: %v", err)
	}
	if _, err = ReadRecord(r); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
)

// servePlugin is the plugin's side. It says what it could do, prints the handshake
// that leads to its own socket, and serves until its input ends.
func servePlugin(args []string) error {
	if len(args) != 3 {
		return errors.New("a plugin gets a work folder, the host's socket and an address of the host")
	}
	work, agent, outside := args[0], args[1], args[2]
	reply, err := call("unix", agent)
	say("granted socket", reply, err)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		say("loopback "+address, "works", loopback(address))
	}
	reply, err = call("tcp", outside)
	say("host's loopback", reply, err)
	beside, err := os.ReadDir(filepath.Dir(work))
	say("beside the work", fmt.Sprintf("%d others", len(beside)-1), err)
	say("write the work", "done", os.WriteFile(filepath.Join(work, "state"), []byte("kept\n"), 0o644))
	say("write /etc", "done", os.WriteFile("/etc/codefly-was-here", nil, 0o644))

	own, err := net.Listen("unix", filepath.Join(work, "plugin.sock"))
	if err != nil {
		return err
	}
	defer own.Close()
	go answer(own, "the plugin")
	fmt.Printf("unix|%s\n", own.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// loopback talks to itself over a listener of its own.
func loopback(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer l.Close()
	go answer(l, "itself")
	_, err = call("tcp", l.Addr().String())
	return err
}

func say(what, result string, err error) {
	if err != nil {
		result = "refused"
	}
	fmt.Printf("%s: %s\n", what, result)
}

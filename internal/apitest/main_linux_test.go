package apitest

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/cli"
)

// helperWord makes the test binary a program that runs inside, and clocheWord the
// command cloche.
const (
	helperWord = "cloche-warm-helper"
	clocheWord = "cloche-command"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == clocheWord {
		os.Exit(cli.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == helperWord {
		if err := helper(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sharedAddresses are reached by all commands of a session, and by nobody else.
var sharedAddresses = [][2]string{{"tcp", "127.0.0.1:7007"}, {"unix", "@cloche-warm-test"}}

// helper listens on each address until it is dialed once, or dials each, or
// spies on processes.
func helper(what string) error {
	switch what {
	case "spy":
		return spy()
	case "apart", "fast":
		return stayWarm(warmModes[what])
	case "unreadable":
		return leaveUnreadable()
	case "sibling":
		return leaveSibling()
	}
	for _, a := range sharedAddresses {
		if what == "dial" {
			conn, err := net.Dial(a[0], a[1])
			if err != nil {
				return fmt.Errorf("%s: %w", ownNetwork(), err)
			}
			conn.Close()
			continue
		}
		l, err := net.Listen(a[0], a[1])
		if err != nil {
			return err
		}
		defer l.Close()
	}
	if what == "listen" {
		fmt.Println(ownNetwork())
		time.Sleep(time.Minute) // until it is killed
	}
	return nil
}

// ownNetwork names the network namespace.
func ownNetwork() string {
	name, _ := os.Readlink("/proc/self/ns/net")
	return name
}

// spy tries to open the memory of every process that it sees until its standard
// input ends, and fails if it was that of the supervisor, under whose name a
// process goes until it has executed something else.
func spy() error {
	done := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, os.Stdin); done <- err }()
	fmt.Println("ready")
	own, err := os.ReadFile("/proc/self/comm")
	for seen := 0; err == nil; {
		select {
		case <-done:
			fmt.Println("processes seen:", seen)
			return nil
		default:
		}
		// New processes have the next numbers.
		last, _ := os.ReadFile("/proc/loadavg")
		fields := strings.Fields(string(last))
		next, _ := strconv.Atoi(fields[len(fields)-1])
		for pid := next; pid < next+3; pid++ {
			f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err != nil {
				continue
			}
			f.Close()
			if seen++; seen == 1 {
				fmt.Println("seen")
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", pid)); string(comm) == string(own) && err != nil {
				return fmt.Errorf("the memory of process %d (%q) could be opened", pid, comm)
			}
		}
	}
	return err
}

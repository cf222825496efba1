package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// churnWord makes this program create, rename and unlink a file again and again, in
// several threads at once, each in a folder of its own.
const churnWord = "churn"

func churnMain(args []string) int {
	if err := churnAll(args); err != nil {
		fmt.Fprintf(os.Stderr, "bench: churn: %v\n", err)
		return 1
	}
	return 0
}

func churnAll(args []string) error {
	if len(args) != 2 {
		return errors.New("it takes the number of threads and of turns")
	}
	threads, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	turns, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	errs := make([]error, threads)
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() {
			runtime.LockOSThread()
			errs[i] = churn(fmt.Sprintf("churn-%d", i), turns)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// churn is all system calls: the package os would add its own.
func churn(dir string, turns int) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer os.Remove(dir)
	from, to := dir+"/from", dir+"/to"
	for range turns {
		fd, err := syscall.Open(from, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		if err := errors.Join(syscall.Close(fd), syscall.Rename(from, to), syscall.Unlink(to)); err != nil {
			return err
		}
	}
	return nil
}

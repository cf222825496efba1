// Package backendtest is the conformance suite for backends: it runs real
// commands under real policies and tries to get out of them. It is for the
// backends of this module and for those of others alike, in the manner of
// [testing/slogtest].
//
// A backend's test calls [Main] from TestMain and [Run] from a test:
//
//	var entry = backend.Entry{Backend: mybackend.New(), Priority: 60}
//
//	func TestMain(m *testing.M) {
//		backendtest.Main(entry)
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) { backendtest.Run(t, entry, backendtest.Options{}) }
//
// The test binary is also the program that runs inside the sandbox: started
// with a certain first argument it does not run tests. It tries each thing that
// a case asks for (open this, connect there, kill that) with one system call
// and reports the exact error. [Main] is what looks for that argument.
//
// # Gaps
//
// A backend need not enforce everything, but it has to say what it does not.
// Each case names the rules it is about, in the words of [backend.Gap]. Where
// the backend declares a gap for one of them, the case checks that a strict
// policy is refused for that gap, and nothing more. A gap that is not declared
// fails the case. The rules are:
//
//	paths         the file system; a gap for "paths" is one for every rule below
//	paths.read, paths.write, paths.hide, paths.protect
//	paths.metadata      modes and times of files outside, names of hidden ones
//	binds, persist, remap, hosts, tmp
//	network.mode  sockets  env
//	network.interfaces  seeing what the host's network is like
//	processes     seeing and signalling processes outside
//	descriptors   open files of the caller
//	system calls  namespaces, mounts, terminal injection, setuid bits
//	privileges    capabilities and no_new_privs
//	ipc           shared memory, message queues, keyrings
//	lifetime      nothing outlives the run
//	limits.time, limits.output, limits.memory, limits.processes,
//	limits.open_files, limits.file_size
//
// # What a run needs
//
// Cases run as the user that runs the test; run the suite as root and as an
// ordinary user, for they differ. A case makes files only in temporary folders,
// a few uniquely named ones in /tmp, /var/tmp and /dev/shm among them, and loads
// the machine within bounds, also if the backend confines nothing. The cases
// are written for Linux; elsewhere Run skips.
package backendtest

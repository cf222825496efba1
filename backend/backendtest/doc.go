// Package backendtest is the conformance suite for backends: it runs real
// commands under real policies and tries to break out of the sandbox. It is for the
// backends of this module and for those of others, like [testing/slogtest].
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
// The test binary is also the program that runs inside the sandbox. If [Main] finds a
// certain first argument, the binary does not run tests. Instead it tries each operation
// that a case asks for (open this, connect there, kill that) with one system call, and
// reports the exact error.
//
// # Gaps
//
// A backend need not enforce everything, but it has to declare what it does not enforce.
// Each case names the rules that it is about, in the words of [backend.Gap]. If the
// backend declares a gap for one of them, the case only checks that a strict policy is
// refused for that gap. A gap that is not declared fails the case. The rules are:
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
// Cases run as the user that runs the test. Run the suite as root and as an ordinary
// user, because the results differ. A case creates files only in temporary folders,
// including a few with unique names in /tmp, /var/tmp and /dev/shm. It uses limited
// resources, even if the backend confines nothing. The cases are written for Linux;
// on other systems Run skips.
package backendtest

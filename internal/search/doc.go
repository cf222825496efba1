// Package search finds the files in a workspace that a policy hides by their name, such as
// .env, before each command.
//
// A search checks every folder of the tree. A folder whose change time is the same is not read
// again: that takes one statx, about 2 µs, and only the kernel sets that time. What is known is
// kept in memory, and in an index file for the next process. In a session of many commands, the
// kernel reports whether anything has changed at all (inotify).
//
// Both are measured against reading every folder each time, with two threads, on two cores. With
// 500 folders a search takes 0.7 ms by the index file, 0.02 ms in a session, and 4.3 ms by reading:
// a third of a `cloche run -- true`. With 50,000 folders and half a million files it takes 0.4 s
// by the index file and 1.0 s by reading.
//
// An index can be wrong, so:
//   - A change time is trusted only if the folder had been at rest for longer than the clock's
//     grain when it was read, as in Git's index.
//   - An entry is about an inode. A folder that was replaced, or that something was mounted on,
//     has another one.
//   - File systems that others than this kernel change are read each time.
//   - Links are not followed. The file has a check sum, a version and one owner; an invalid file
//     is replaced.
//
// A search has bounds, and reports what it left out. Known folders come first, so that nobody can
// bury a file under new folders.
package search

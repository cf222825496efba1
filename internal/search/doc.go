// Package search finds the files of a folder that a policy hides wherever they are, such
// as .env, before each command.
//
// A search looks at every folder of the tree. It is cheap because it remembers: a folder
// whose change time is what it was is not read again (one statx, about 2 µs), and only the
// kernel sets that time. What is known is kept in memory, and in a file for the next
// process. In a session of many commands the kernel tells whether anything has changed at
// all.
//
// What is remembered counts for nothing by itself:
//   - A change time is trusted only if the folder had been at rest for longer than the
//     clock's grain when it was read, as in Git's index.
//   - A record is about an inode. A folder that was replaced, or that something was mounted
//     on, has another one.
//   - File systems on which others than this kernel make changes are read each time.
//   - Links are not followed. The file has a check sum, a version and one owner; one that is
//     not as it should be is made anew.
//
// A search has bounds, and says what it left out. Folders that are known come first, so that
// nobody can bury a file under new folders.
package search

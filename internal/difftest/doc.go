// Package difftest compares what cloche says with what happens. It has no code but
// its tests.
//
// A case is a random policy of several layers (paths that are read, written, hidden
// and protected, patterns, binds, persisted directories, a remapped workspace, files
// and directories, links, paths that are missing, a project file that is not
// trusted) and a list of operations on a small tree. One process inside the sandbox
// tries them all and reports for each the error, and the file that it reached.
// An operation has succeeded only if it reached the host's own file, by any name
// that the sandbox has for it. Six things have to hold:
//
//   - check: [cloche.Session.Check] says allowed if and only if the operation succeeds.
//   - one judge: the session's methods, the list of paths that explain prints, the rule in the
//     record of a refusal and MCP's check_access say of a path what check says.
//   - untrusted: what succeeds with an untrusted project file succeeds without it.
//   - verify: no rule is reported as broken, and none as held that let something pass.
//   - grant: with the option that a refusal suggests, the operation succeeds.
//   - learn: for an operation that check allows, `cloche learn` proposes nothing. For one that an option
//     opens it proposes a rule, with which check allows it and it succeeds. Of all others it says why
//     they are left out, and it opens nothing that a rule hides or protects unless it is named.
//
// A case is made from one number, which a failure prints:
//
//	CLOCHE_DIFF_SEED=NUMBER go test ./internal/difftest -run TestDifferences -v
//	CLOCHE_DIFF_SEED=NUMBER go test ./internal/difftest -run TestLearn -v
//
// By default a few cases run, always the same. CLOCHE_DIFF_TIME=10m goes on with random ones for so long, as
// `FUZZTIME=10m ./scripts/test fuzz` does.
package difftest

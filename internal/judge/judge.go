// Package judge decides what a plan allows. It is the one place where that is done:
// check, explain, verify, learn, the broker, the network proxy and the server for agents
// all ask it, so that they agree.
//
//   - [Files] decides about paths, and [Network] about connections, names and requests.
//     Both are made from a plan, never change, and look at nothing else.
//   - Each answer is a [plan.Decision]: the access, the rule and where it comes from.
//   - A [Fixer] adds to a denied one the edits of the policy that would allow it. It can
//     try them, if its owner can make plans.
//
// [Masks] answer the most frequent question, whether a line hides a path, at less cost.
package judge

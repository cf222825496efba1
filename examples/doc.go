// Package examples has five small programs that use cloche the way five existing
// tools run the commands of AI agents, each with the policy that gives the tool's
// defaults:
//
//   - flemma: an editor whose documents override the sandbox, with approval
//     of tool calls because of the sandbox
//   - codefly: a host of plugins that wraps commands which it has prepared
//   - clai: an agent that asks a person for paths
//   - lmcli: a runner of tools with a remapped workspace and persisted folders
//   - flow: a node of a workflow that declares its capabilities, with an audit log
//
// docs/coming-from has a page for each that maps every option. The package itself
// is empty; its tests build the programs and run them on the real kernel.
package examples

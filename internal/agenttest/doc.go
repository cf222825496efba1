// Package agenttest runs real coding agents against a scripted model on loopback, without
// credentials and without a network, for tests.
//
// The agents come from npm, in the versions of agents/package-lock.json. scripts/agents
// installs them into a folder outside of the repository; [Program] finds them there.
package agenttest

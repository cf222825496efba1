// Package apitest is the tests of package cloche by what is public of it: sessions and
// commands, warm and wrapped ones, grants and questions, git, real tools, and what they
// leave behind. They run on the real kernel.
package apitest

package cli

//go:generate go run ./gen -man ../../docs/man -completions ../../completions

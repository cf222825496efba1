// Package redact replaces secrets in command lines.
package redact

import "strings"

// Replacement replaces a secret.
const Replacement = "[redacted]"

// secretEndings are the endings of names of flags and variables with secret values. Names are
// compared in lower case and without "-" and "_".
var secretEndings = []string{
	"token", "password", "passwd", "passphrase", "secret",
	"apikey", "accesskey", "secretkey", "privatekey",
}

// Argv returns argv with obvious secrets replaced: the values of flags such as --token and
// --api-key (as "--token=V" and as the next word), of words such as GITHUB_TOKEN=V, of headers
// such as "Authorization: Bearer V", and the password in a URL. The input is not changed.
//
// There is no guarantee: a secret inside a shell script, after a short flag or in a file name
// stays. Secrets belong in the environment, whose values are never recorded.
func Argv(argv []string) []string {
	if argv == nil {
		return nil
	}
	out := make([]string, len(argv))
	valueNext := false
	for i, word := range argv {
		switch {
		case valueNext && !strings.HasPrefix(word, "-"):
			out[i], valueNext = Replacement, false
		default:
			out[i], valueNext = redactWord(word)
		}
	}
	return out
}

// redactWord redacts one word. valueNext says that it is a flag whose value is the next word.
func redactWord(word string) (out string, valueNext bool) {
	name, _, hasValue := strings.Cut(word, "=")
	flag := strings.HasPrefix(name, "-")
	switch {
	case hasValue && isName(name) && secretName(name):
		return name + "=" + Replacement, false
	case !hasValue && flag && secretName(name):
		return word, true
	}
	if name, _, ok := strings.Cut(word, ":"); ok && isName(name) && secretHeader(name) && !strings.Contains(word, "://") {
		return name + ": " + Replacement, false
	}
	return redactURL(word), false
}

// isName reports whether s can be the name of a flag, variable or header.
func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// secretName reports whether a name indicates a secret value. A flag such as "--no-password"
// has no value.
func secretName(name string) bool {
	name = strings.ToLower(strings.TrimLeft(name, "-"))
	if strings.HasPrefix(name, "no-") {
		return false
	}
	name = strings.NewReplacer("-", "", "_", "").Replace(name)
	for _, ending := range secretEndings {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return false
}

func secretHeader(name string) bool {
	return secretName(name) || strings.EqualFold(name, "Authorization") ||
		strings.EqualFold(name, "Proxy-Authorization") || strings.EqualFold(name, "Cookie")
}

// redactURL removes the password from "scheme://user:password@host", wherever
// it is in the word. A user name alone stays, as in ssh://git@host.
func redactURL(word string) string {
	before, rest, ok := strings.Cut(word, "://")
	if !ok {
		return word
	}
	end := strings.IndexAny(rest, "/?# \t\n")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], redactURL(rest[end:])
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		if user, _, ok := strings.Cut(authority[:at], ":"); ok {
			authority = user + ":" + Replacement + authority[at:]
		}
	}
	return before + "://" + authority + rest
}

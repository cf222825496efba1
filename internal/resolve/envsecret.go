package resolve

import "strings"

// secretPrefixes are the beginnings of tokens of well-known services, such as GitHub. A match
// needs at least secretRest more token characters.
var secretPrefixes = []string{
	"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "glrt-",
	"sk-", "sk_live_", "rk_live_", "sk_test_", "whsec_",
	"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xapp-",
	"AKIA", "ASIA", "AIza", "ya29.", "GOCSPX-",
	"npm_", "pypi-", "dckr_pat_", "hf_", "dop_v1_", "shpat_", "lin_api_", "ntn_", "ATATT", "tskey-", "SG.", "key-", "figd_", "pul-", "rubygems_",
	"AGE-SECRET-KEY-", "hvs.", "nvapi-", "gsk_", "r8_", "xai-", "pplx-",
}

const secretRest = 16

// secretParts mark a value as a secret, whatever its variable is called.
var secretParts = []string{"PRIVATE KEY-----", "hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", ".webhook.office.com/"}

// secretValue returns why a value looks like a secret, or "": it contains a URL with a
// password, a token of a well-known service, a JSON web token, a private key, or the value of
// an Authorization header. It never returns the value itself.
func secretValue(value string) string {
	if hasPassword(value) {
		return "a URL with a password"
	}
	for _, part := range secretParts {
		if strings.Contains(value, part) {
			return "a value that is a secret"
		}
	}
	for _, scheme := range []string{"bearer ", "basic "} {
		if len(value) >= len(scheme)+secretRest && strings.EqualFold(value[:len(scheme)], scheme) {
			return "the value of an Authorization header"
		}
	}
	for i := 0; i < len(value); i++ {
		if i > 0 && isTokenByte(value[i-1]) {
			continue
		}
		if isToken(value[i:]) {
			return "a token of a well-known shape"
		}
	}
	return ""
}

// hasPassword reports whether a URL in the value has a user with a password.
func hasPassword(value string) bool {
	for {
		_, rest, ok := strings.Cut(value, "://")
		if !ok {
			return false
		}
		authority := rest
		if end := strings.IndexAny(rest, "/?# \t\n\"'"); end >= 0 {
			authority = rest[:end]
		}
		if user, _, ok := cutLast(authority, '@'); ok {
			if _, password, ok := strings.Cut(user, ":"); ok && password != "" {
				return true
			}
		}
		value = rest
	}
}

// cutLast cuts at the last c, because a password may contain an unescaped "@".
func cutLast(s string, c byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, c); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// isToken reports whether a text begins with a token.
func isToken(s string) bool {
	for _, p := range secretPrefixes {
		if strings.HasPrefix(s, p) && tokenRun(s[len(p):], false) >= secretRest {
			return true
		}
	}
	// A JSON web token has three parts in base64; the first is a JSON object.
	if strings.HasPrefix(s, "eyJ") {
		token := s[:tokenRun(s, true)]
		return strings.Count(token, ".") >= 2 && len(token) >= 2*secretRest
	}
	return false
}

// tokenRun returns the length of the token at the beginning of a text.
func tokenRun(s string, dots bool) int {
	n := 0
	for n < len(s) && (isTokenByte(s[n]) || dots && s[n] == '.') {
		n++
	}
	return n
}

func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

package secret

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cloche-dev/cloche/internal/sessionbus"
)

// The Secret Service of the desktop: GNOME Keyring, KWallet, KeePassXC and others.
const (
	keyringName   = "org.freedesktop.secrets"
	keyringObject = "/org/freedesktop/secrets"
	keyringOf     = "org.freedesktop.Secret."
)

// keyring returns the secret of the one item of the keyring that has all attributes. It does not
// unlock anything: that would need a window, for which nobody may be there.
func (r *Reader) keyring(ctx context.Context, attributes []string) ([]byte, error) {
	c, err := sessionbus.Dial(ctx, sessionbus.Addresses())
	if err != nil {
		return nil, fmt.Errorf("cannot be asked: %w", err)
	}
	defer c.Close()
	unlocked, locked, err := searchItems(c, attributes)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be searched: %w", err)
	case len(unlocked) > 1:
		return nil, fmt.Errorf("has %d such items; give more attributes", len(unlocked))
	case len(unlocked) == 0 && len(locked) > 0:
		return nil, errors.New("is locked; unlock it first")
	case len(unlocked) == 0:
		return nil, errors.New("has no such item")
	}
	session, err := openSession(c)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w", err)
	}
	var args sessionbus.Message
	args.Text(session)
	body, err := c.Call(sessionbus.Method{To: keyringName, Path: unlocked[0], Interface: keyringOf + "Item", Member: "GetSecret", Signature: "o"}, args)
	if err != nil {
		return nil, fmt.Errorf("does not give the item: %w", err)
	}
	defer clear(body)
	answer := sessionbus.NewReader(body)
	answer.Align(8)
	answer.Text()  // the session
	answer.Bytes() // parameters of encryption, of which there is none
	value := answer.Bytes()
	if err := answer.Err(); err != nil {
		return nil, err
	}
	b := newBuffer()
	b.bytes = append(b.bytes, value[:min(len(value), cap(b.bytes))]...)
	return b.take(), nil
}

// searchItems returns the objects of the items with all attributes.
func searchItems(c *sessionbus.Conn, attributes []string) (unlocked, locked []string, err error) {
	var entries sessionbus.Message
	for _, a := range attributes {
		key, value, _ := strings.Cut(a, "=")
		entries.Align(8)
		entries.Text(key)
		entries.Text(value)
	}
	var args sessionbus.Message
	args.Number(uint32(len(entries)))
	args.Align(8)
	body, err := c.Call(service("SearchItems", "a{ss}"), append(args, entries...))
	if err != nil {
		return nil, nil, err
	}
	answer := sessionbus.NewReader(body)
	unlocked = answer.Texts()
	locked = answer.Texts()
	return unlocked, locked, answer.Err()
}

// openSession opens a session without encryption: the bus is a socket of this user.
func openSession(c *sessionbus.Conn) (string, error) {
	var args sessionbus.Message
	args.Text("plain")
	args.Signature("s")
	args.Text("")
	body, err := c.Call(service("OpenSession", "sv"), args)
	if err != nil {
		return "", err
	}
	answer := sessionbus.NewReader(body)
	if kind := answer.Signature(); kind != "s" {
		return "", errors.New("it wants encryption")
	}
	answer.Text()
	session := answer.Text()
	return session, answer.Err()
}

func service(member, signature string) sessionbus.Method {
	return sessionbus.Method{To: keyringName, Path: keyringObject, Interface: keyringOf + "Service", Member: member, Signature: signature}
}

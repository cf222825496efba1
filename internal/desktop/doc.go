// Package desktop tells the user, by a notification of the desktop, that a request waits for
// a decision and how to decide.
//
// The text is cloche's own. It holds nothing that the asking program chose, neither a path nor
// a reason: many desktops show markup in it. There are no buttons to decide with: a notification
// is too short for what a person has to read before, it appears under a pointer that was about to
// click on something else, and every program on the bus can send the signal of a click.
//
// Where there is no bus, or nobody on it shows notifications, nothing happens.
package desktop

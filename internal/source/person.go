package source

import "slices"

// IsPerson reports whether a person may be behind an address: who writes over a channel, but for
// schedules.
func IsPerson(address string) bool {
	a, _, err := ParseLenient(address)
	return err == nil && a.Kind == External && a.ChannelType != "schedule"
}

// IsConsole reports whether an address is of a person at `agentctl chat` or a console of the home.
func IsConsole(address string) bool {
	a, _, err := ParseLenient(address)
	return err == nil && a.Kind == External && a.ChannelType == "console"
}

// IsOwner reports whether one of the owners of a home, each as type:peer, or a console of it is behind an address. One
// that can be read in two ways is of none.
func IsOwner(address string, owners []string) bool {
	a, err := Parse(address)
	return err == nil && a.Kind == External && (a.ChannelType == "console" || slices.Contains(owners, a.ChannelType+":"+a.PeerID))
}

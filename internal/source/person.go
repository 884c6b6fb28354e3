package source

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

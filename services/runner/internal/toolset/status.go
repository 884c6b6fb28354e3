package toolset

// Status is what is known of the work on a turn without a call of the registry.
type Status struct {
	// Provider and Model answer; Thinking is how, empty: as the provider is set.
	Provider, Model, Thinking string
	// Session is the key of the conversation, Epoch the id of its epoch; empty: it has none. EpochFromID is the event
	// that begins the epoch; 0: it is the complete thread.
	Session, Epoch string
	EpochFromID    int64
	// Messages and Tokens, an estimate, are of the newest prompt, and Window is what the model takes, in tokens; 0: not
	// known, as of a prompt that another process has made.
	Messages       int
	Tokens, Window int64
	// Answers of the model in this turn, with the tokens that they took, as the provider counts them. Cost is known when
	// Unpriced is false, in the currency of the prices.
	Answers       int
	Input, Output int64
	Cost          float64
	Unpriced      bool
}

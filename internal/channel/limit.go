package channel

// Limiter is a [Channel] whose platform takes texts up to a length only. A longer one is sent as
// several messages.
type Limiter interface {
	Limit() Limit
}

// Limit is the longest text of a message, in the units of its platform.
type Limit struct {
	Max int
	// Units is what a character counts, 1 or 2; nil: 1.
	Units func(rune) int
	// Size is the length of a text as it is sent, after its Markdown was rendered; nil: it is sent
	// as it is written.
	Size func(text string) int
	// Buttons is the longest text of a message with buttons, in what Length counts; 0: Max.
	Buttons int
}

// Length is the length of a text in a message, in the units of the platform.
func (l Limit) Length(text string) (n int) {
	if l.Size != nil {
		return l.Size(text)
	}
	for _, r := range text {
		if l.Units == nil {
			n++
		} else {
			n += l.Units(r)
		}
	}
	return n
}

package slack

import (
	"regexp"
	"sync"
)

// nameRule is what a name of an emoji may look like.
var nameRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9_+'-]{1,100}(::skin-tone-[2-6])?$`) })

// emoji are the platform's names of the marks that agents use; others are given by name.
var emoji = map[string]string{
	"👀": "eyes", "👍": "+1", "👎": "-1", "👌": "ok_hand", "👏": "clap", "🙌": "raised_hands", "🙏": "pray",
	"💪": "muscle", "👋": "wave", "🤝": "handshake", "✍": "writing_hand", "✅": "white_check_mark",
	"✔": "heavy_check_mark", "❌": "x", "⚠": "warning", "❗": "exclamation", "❓": "question",
	"🚫": "no_entry_sign", "⛔": "no_entry", "❤": "heart", "💔": "broken_heart", "💯": "100", "🔥": "fire",
	"🎉": "tada", "🚀": "rocket", "⭐": "star", "✨": "sparkles", "⚡": "zap", "🏆": "trophy", "💡": "bulb",
	"🐛": "bug", "📌": "pushpin", "📎": "paperclip", "📝": "memo", "🔍": "mag", "🔒": "lock",
	"⏳": "hourglass_flowing_sand", "⌛": "hourglass", "⏰": "alarm_clock", "🔄": "arrows_counterclockwise",
	"💤": "zzz", "😀": "grinning", "😁": "grin", "😂": "joy", "🤣": "rolling_on_the_floor_laughing",
	"🙂": "slightly_smiling_face", "😊": "blush", "😍": "heart_eyes", "😎": "sunglasses", "🤔": "thinking_face",
	"😐": "neutral_face", "😢": "cry", "😭": "sob", "😱": "scream", "😡": "rage", "🤯": "exploding_head",
	"🤷": "shrug", "🤖": "robot_face", "🫡": "saluting_face",
}

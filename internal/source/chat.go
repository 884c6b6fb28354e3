package source

import "slices"

// chats are the channel types of platforms on which people write by hand to a bot and wait
// for its answer. Not among them: e-mail and SMS, where answering machines reply to
// whatever they receive, and webhook, api, console and tui, which programs use or which
// show a failure themselves.
var chats = []string{
	"dingtalk", "discord", "feishu", "googlechat", "imessage", "instagram", "kakaotalk", "lark", "line", "matrix",
	"mattermost", "messenger", "msteams", "qq", "rocketchat", "signal", "slack", "teams", "telegram", "viber", "wechat",
	"wecom", "whatsapp", "zalo",
}

// IsChat reports whether who writes over a channel of this type in a session of this type is
// a person alone with the agent on a chat platform.
func IsChat(channelType, sessionType string) bool {
	return sessionType == DM && slices.Contains(chats, channelType)
}

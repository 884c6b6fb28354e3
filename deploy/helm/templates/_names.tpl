{{- define "theclaw.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "theclaw.selector" -}}
app.kubernetes.io/name: theclaw
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "theclaw.labels" -}}
{{ include "theclaw.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- /* Whether the gateway is reached over an ingress; the values that it needs are checked. */}}
{{- define "theclaw.public" -}}
{{- with .Values.gateway }}
{{- if .publicURL }}
{{- if not (hasPrefix "https://" .publicURL) }}
{{- fail "gateway.publicURL is https://HOST or https://HOST:PORT" }}
{{- end }}
{{- if not .trustedProxies }}
{{- fail "gateway.trustedProxies are the addresses from which the ingress connects, as CIDRs" }}
{{- end }}
{{- if not .from }}
{{- fail "gateway.from says who may reach the gateway: peers of a NetworkPolicy, those of the ingress" }}
{{- end }}
{{- if and .ingress.enabled (not .ingress.tlsSecret) }}
{{- fail "gateway.ingress.tlsSecret names the Secret with the certificate of the host of gateway.publicURL" }}
{{- end -}}
true
{{- else if .ingress.enabled }}
{{- fail "gateway.ingress needs gateway.publicURL, the address that programs use" }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The parts of a cluster: "root" is the chart's, "part" the service. */}}
{{- define "theclaw.part.name" -}}
{{ include "theclaw.name" .root }}-{{ .part }}
{{- end -}}

{{- define "theclaw.part.selector" -}}
{{ include "theclaw.selector" .root }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "theclaw.part.labels" -}}
{{ include "theclaw.labels" .root }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

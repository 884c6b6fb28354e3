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

"""The usual phrasings of orders to a model in German, French, Spanish and Chinese. Each row: what
the order does, keywords of which one must occur, and the pattern for folded text. Pure.
"""

# An order begins at the start of a sentence or of a quotation.
STARTS = (
    r"(?:^|[.!?:;,\"'`“”‘’(\[>*#\n–—-] ?|\b(?:please|now|must|should|shall|will|kindly|just|then) )"
)

# The verbs of the usual phrasings in German, French and Spanish, and their objects.
_DE_IGNORE = (
    r"(?:ignorier(?:e|en|t)?|vergiss|vergesst|vergessen|missachte[nt]?|ubergeh(?:e|en|t)?|verwirf"
    r"|verwerfen)(?: sie)?(?: bitte)?"
)
_DE_WORDS = (
    r"(?:system)?(?:anweisung|instruktion|befehl|vorgabe|regel|richtlinie|prompt|anordnung)"
    r"(?:en|e|n|s)?"
)
_FR_IGNORE = (
    r"(?:ignore[rz]?|oublie[rz]?|neglige[rz]?|(?:ne tiens pas|ne tenez pas|fais|faites) "
    r"(?:compte|abstraction) d(?:e|es)|outrepasse[rz]?|contourne[rz]?)"
)
_ES_IGNORE = (
    r"(?:ignor[ae]|olvid[ae]|descart[ae]|omit[ae]|desestim[ae]|olvidate de|ha[sz] caso omiso de"
    r"|haga caso omiso de)"
)


OTHER_LANGUAGES: tuple[tuple[str, str, str], ...] = (
    (
        "overrides earlier instructions",
        "anweisung|instruktion|befehl|vorgabe|regeln|richtlinie|prompt",
        (
            rf"\b{_DE_IGNORE}\b[^.!?]{{0,20}}"
            r"\b(?:alle|samtliche|jegliche|deine|ihre|vorherige|bisherige|vorige|obige|fruhere"
            r"|vorangegangene|vorhergehende|vorstehende|ursprungliche|bestehende)[nr]?\b"
            rf"[^.!?]{{0,30}}\b{_DE_WORDS}\b(?! (?:im|in|auf|am|an|von|vom|fur|aus|zum|zur|bei)\b)"
        ),
    ),
    (
        "overrides earlier instructions",
        "alles|das obige|anweisung|vorgabe|regeln|befehl|instruktion",
        (
            rf"{STARTS}(?:{_DE_IGNORE} alles,? was (?:(?:dir|ihnen) )?(?:bisher|vorher|zuvor|davor"
            r"|oben) (?:gesagt|geschrieben|steht|mitgeteilt|aufgetragen|stand)"
            rf"|{_DE_IGNORE} (?:das obige|alles obige|alles bisherige|alles zuvor)"
            rf"|(?:halte dich|halten sie sich) nicht (?:mehr |langer )?an [^.!?]{{0,20}}{_DE_WORDS}"
            rf"|(?:befolge|beachte|folge)[nt]?(?: sie)? (?:nicht (?:mehr )?"
            rf"|keine )[^.!?]{{0,30}}{_DE_WORDS}"
            rf"|(?:befolge|beachte) [^.!?]{{0,30}}{_DE_WORDS} nicht\b"
            rf"|setz(?:e|en sie)? (?:alle|deine"
            rf"|ihre) [^.!?]{{0,20}}{_DE_WORDS} (?:ausser kraft|zuruck))"
        ),
    ),
    (
        "gives the reader another character",
        "du bist|sie sind|verhalte dich|von nun an|ab jetzt|ab sofort",
        (
            rf"{STARTS}(?:du bist|sie sind) (?:jetzt|nun|ab jetzt|ab sofort|von nun an"
            rf"|nicht mehr)\b"
            r"[^.!?]{0,30}(?:\bdan\b|uneingeschrankt|unzensiert|ungefiltert|ohne (?:jede |jegliche "
            r"|alle )?(?:regeln|einschrankung|beschrankung|filter)|an (?:deine |ihre )?(?:regeln"
            r"|vorgaben|anweisungen) gebunden|entwicklermodus|administratormodus)"
            r"|\b(?:von nun an|ab jetzt|ab sofort) (?:befolgst|gehorchst"
            r"|antwortest) du (?:nur|nicht"
            r"|ausschliesslich|keine)\b"
        ),
    ),
    (
        "asks for what is private",
        "systemprompt|system-prompt|systemanweisung|systemnachricht",
        (
            rf"{STARTS}(?:gib|zeig|nenn|verrat|wiederhol|druck|offenbar|schreib|sag)"
            r"(?:e|en sie)?\b[^.!?]{0,30}"
            r"\b(?:systemprompt|system-prompt|systemanweisung|systemnachricht)(?:en|s)?\b"
        ),
    ),
    (
        "asks for secrecy",
        "nutzer|benutzer|anwender|menschen",
        (
            r"\b(?:sag|verrat|erzahl|teil|zeig|melde)(?:e|en sie)?\b[^.!?]{0,12}"
            r"\b(?:dem (?:be)?nutzer|der (?:be)?nutzerin|dem anwender|dem menschen)\b[^.!?]{0,20}"
            r"\b(?:nichts davon|nichts hiervon|nicht(?:s)? (?:mit|davon|von dieser|uber diese))\b"
        ),
    ),
    (
        "works the memory's tools",
        "erinnerung|gedachtnis",
        (
            rf"{STARTS}(?:losch|entfern|vernicht|uberschreib)(?:e|en sie)? (?:alle|samtliche|jede)"
            r" (?:deine |ihre |gespeicherten |vorhandenen |bisherigen )*(?:erinnerung(?:en)?"
            r"|gedachtniseintrage)\b"
        ),
    ),
    (
        "speaks to the reader",
        "die ki|das modell|das sprachmodell|du eine ki|assistent|ein sprachmodell",
        (
            r"\b(?:nachricht|hinweis|anweisung|notiz|achtung)[ ,:]{1,2}(?:an|fur) (?:die ki"
            r"|das modell"
            r"|das sprachmodell|den (?:ki-)?assistenten)\b"
            r"|\b(?:wenn|falls) du (?:eine ki|ein sprachmodell|ein ki-assistent) bist\b"
        ),
    ),
    (
        "overrides earlier instructions",
        "instruction|consigne|directive|regle",
        (
            rf"\b{_FR_IGNORE}\b[^.!?]{{0,25}}\b(?:instruction|consigne|directive|regle|ordre)s?\b"
            r"[^.!?]{0,20}"
            r"\b(?:precedente|anterieure|ci-dessus|donnee|initiale|systeme|ci-avant|recue|d'origine"
            r"|d'avant|du systeme)s?\b"
        ),
    ),
    (
        "overrides earlier instructions",
        "instruction|consigne|directive|regle|tout ce",
        (
            rf"{STARTS}(?:{_FR_IGNORE} (?:toute?s?|l'ensemble de) (?:les |tes |vos |ces )?"
            r"(?:precedentes |anciennes )?(?:instructions|consignes|directives|regles)\b"
            r"(?! (?:dans|sur|de|du|des|pour|en|au)\b)"
            rf"|{_FR_IGNORE} (?:tes|vos) (?:instructions|consignes|directives|regles)\b"
            rf"|{_FR_IGNORE} (?:les )?(?:precedentes|anciennes) (?:instructions|consignes"
            rf"|directives)\b"
            rf"|{_FR_IGNORE} tout ce (?:qui precede|qui (?:t'|vous )?a ete dit|qu'on (?:t'"
            rf"|vous )a dit"
            r"|que (?:tu as|vous avez) (?:lu|recu|appris))"
            r"|n'obei(?:s|ssez) (?:pas|plus) a [^.!?]{0,20}\b(?:instructions|consignes"
            r"|directives)\b"
            r"|ne (?:suis|suivez|respecte|respectez|tiens|tenez) (?:pas"
            r"|plus)(?: compte)? [^.!?]{0,20}"
            r"\b(?:instructions|consignes|directives)\b)"
        ),
    ),
    (
        "gives the reader another character",
        "tu es|vous etes|desormais|a partir de maintenant|dorenavant",
        (
            r"\b(?:tu es|vous etes) (?:maintenant|desormais|dorenavant|a present)\b[^.!?]{0,30}"
            r"(?:\bdan\b|sans (?:aucune |aucun )?(?:restriction|limite|filtre|censure|regle)"
            r"|non censure|illimite|mode developpeur|mode administrateur)"
            r"|\b(?:a partir de maintenant|desormais|dorenavant),? (?:tu|vous) (?:obeis|obeissez"
            r"|n'obeis|n'obeissez|ne reponds|ne repondez|ne suis|ne suivez)\b"
        ),
    ),
    (
        "asks for what is private",
        "prompt|instructions systeme|message systeme|consignes systeme",
        (
            rf"{STARTS}(?:affiche|montre|revele|repete|donne|imprime|ecris"
            rf"|divulgue)[rsz]?(?:-moi)? "
            r"[^.!?]{0,12}\b(?:prompt (?:systeme|initial|du systeme)|(?:instructions|consignes"
            r"|message) (?:systeme|du systeme|cachees|secretes))\b"
        ),
    ),
    (
        "asks for secrecy",
        "utilisateur|usager",
        (
            r"\bne (?:(?:le |la |l'|en )?(?:dis|dites|revele|revelez|mentionne|mentionnez"
            r"|parle|parlez"
            r"|signale|signalez)) (?:pas|rien|jamais)\b[^.!?]{0,20}\ba (?:l'"
            r"|cet )utilisat(?:eur|rice)\b"
            r"|\bn'en (?:dis|dites|parle|parlez) (?:pas|rien|jamais) a l'utilisat(?:eur|rice)\b"
        ),
    ),
    (
        "works the memory's tools",
        "souvenir|memoire",
        (
            rf"{STARTS}(?:supprime|efface|detruis|detruise|ecrase)[rsz]? (?:tous|toutes"
            rf"|l'ensemble de)"
            r" (?:les |tes |vos )(?:souvenirs|memoires|entrees de (?:la )?memoire)\b"
        ),
    ),
    (
        "overrides earlier instructions",
        "instruc|indicacion|directiv|istruzion|ordenes|reglas",
        (
            r"\b(?:ignor[ae]|ignorar|ignoren|olvid[ae]|olvidar|descart[ae]|omit[ae]|desestim[ae]"
            r"|has caso omiso de|haz caso omiso de|haga caso omiso de|ignori|dimentica"
            r"|esquec[ae])\b"
            r"[^.!?]{0,30}\b(?:instruccion|indicacion|directiv|instruc"
            r"|istruzion|ordenes|reglas)\w{0,3}\b[^.!?]{0,20}"
            r"\b(?:anterior|previ|precedent|de arriba|del sistema|originales|iniciales|recibid"
            r"|que te dieron)\w{0,3}\b"
        ),
    ),
    (
        "overrides earlier instructions",
        "instruccion|indicacion|directriz|directric|lo anterior|todo lo",
        (
            rf"{STARTS}(?:{_ES_IGNORE} (?:todas (?:las |tus |sus )?|tus |sus )(?:anteriores "
            rf"|previas )?"
            r"(?:instrucciones|indicaciones|directrices|ordenes|reglas)\b"
            r"(?! (?:en|de|del|para|sobre|que|al)\b)"
            rf"|{_ES_IGNORE} las (?:anteriores|previas) (?:instrucciones|indicaciones"
            rf"|directrices)\b"
            rf"|{_ES_IGNORE} (?:lo anterior\b|todo lo anterior|todo lo (?:que (?:te"
            rf"|se) (?:han|ha|dijeron|dijo|hayan)|dicho"
            r"|que has (?:leido|recibido)))"
            r"|(?:no sigas|no siga|no obedezcas|deja de seguir|no hagas caso (?:a|de)) [^.!?]{0,20}"
            r"\b(?:instrucciones|indicaciones|directrices)\b)"
        ),
    ),
    (
        "gives the reader another character",
        "eres|ahora en adelante|a partir de ahora",
        (
            r"\b(?:ahora eres|eres ahora|ya no eres|a partir de ahora eres)\b[^.!?]{0,30}"
            r"(?:\bdan\b|sin (?:ninguna |ningun )?(?:restriccion|limit|filtro|censura|regla)"
            r"|modo (?:desarrollador|administrador|dios))"
            r"|\b(?:de ahora en adelante|a partir de ahora),? (?:solo )?(?:obedeceras|obedece"
            r"|responderas solo|no seguiras|ignoraras)\b"
        ),
    ),
    (
        "asks for what is private",
        "prompt|instrucciones del sistema|mensaje del sistema|instrucciones ocultas",
        (
            rf"{STARTS}(?:muestra|muestrame|revela|repite|imprime|dime|ensena|escribe)(?:me)? "
            r"[^.!?]{0,12}\b(?:prompt (?:del sistema|de sistema|inicial)|(?:instrucciones|mensaje)"
            r" (?:del sistema|ocultas|secretas))\b"
        ),
    ),
    (
        "asks for secrecy",
        "usuario|usuaria",
        (
            r"\bno (?:se )?(?:le )?(?:lo )?(?:digas|diga|cuentes|cuente|reveles|revele|menciones"
            r"|mencione|informes|informe)\b[^.!?]{0,20}\b(?:al usuario|a la usuaria)\b"
        ),
    ),
    (
        "works the memory's tools",
        "recuerdo|memoria",
        (
            rf"{STARTS}(?:borra|elimina|suprime|sobrescribe|destruye)r? (?:todos los"
            rf"|todas las|todos"
            r" tus|todas tus|todos sus) (?:recuerdos|memorias)\b"
        ),
    ),
    (
        "overrides earlier instructions",
        "忽略|无视|無視|忘记|忘記|忘掉|理会|理會|遵守|遵循|抛开|拋開|不要管",
        (
            r"(?:(?:忽略|无视|無視|忘记|忘記|忘掉|抛开|拋開)(?![了过過])|(?:不要|不必|无需|別|别)(?:再)?(?:理会|理會|遵守|遵循|管))"
            r"[^。!?]{0,8}"
            r"(?:之前|以上|上面|前面|先前|所有|一切|此前|你的|系统|系統|原来|原有|全部)[^。!?]{0,8}"
            r"(?:指令|指示|提示词|提示詞|提示|规则|規則|设定|設定|命令|要求|说明|說明)"
        ),
    ),
    (
        "overrides earlier instructions",
        "忽略|无视|無視|忘记|忘記|忘掉",
        r"(?:忽略|无视|無視|忘记|忘記|忘掉)(?:之前|以上|上面|前面|先前|此前)(?:的)?(?:所有|全部|一切)?(?:内容|內容|对话|對話)",
    ),
    (
        "gives the reader another character",
        "你现在是|你現在是|从现在起|從現在起|从现在开始|你不再",
        (
            r"(?:你现在是|你現在是|从现在起你是|從現在起你是|从现在开始你是|从现在开始,你是|从现在起,你是)"
            r"[^。!?]{0,20}(?:没有(?:任何)?限制|沒有(?:任何)?限制|不受(?:任何)?限制|不受约束|无限制|開發者|开发者模式|dan)"
            r"|你不再(?:受|遵守|遵循)[^。!?]{0,12}(?:限制|约束|規則|规则|指令)"
        ),
    ),
    (
        "asks for what is private",
        "提示",
        (
            r"(?:输出|輸出|显示|顯示|告诉我|告訴我|泄露|洩露|重复|重複|打印)[^。!?]{0,8}(?:系统|系統|初始|隐藏|隱藏)(?:的)?(?:提示词"
            r"|提示詞|提示|指令)|[把将將](?:你的)?(?:系统|系統|初始|隐藏|隱藏)(?:提示词|提示詞|指令)[^。!?]{0,4}(?:输出|輸出|显示|顯示"
            r"|告诉|告訴|打印)"
        ),
    ),
    (
        "asks for secrecy",
        "用户|用戶|使用者",
        r"(?:不要|别|別|切勿|不得)(?:告诉|告訴|通知|告知|提醒|透露给|透露給|让|讓)(?:用户|用戶|使用者)",
    ),
    (
        "works the memory's tools",
        "记忆|記憶",
        r"(?:删除|刪除|清除|清空|抹去|覆盖|覆蓋)(?:你的|用户的|用戶的)?(?:所有|全部|一切)(?:的|存储的|保存的|已存的)?(?:记忆|記憶)",
    ),
    (
        "overrides earlier instructions",
        "ungultig|aufgehoben|annule|anuladas|sin efecto|作废|作廢|无效|無效",
        (
            r"\balle (?:vorherigen|bisherigen|fruheren|obigen) (?:anweisungen|instruktionen|regeln)"
            r" sind (?:ab jetzt |nun |hiermit )?(?:ungultig|aufgehoben)\b"
            r"|\btoutes les (?:instructions|consignes) (?:precedentes|anterieures) sont"
            r" (?:desormais |maintenant )?annulees\b"
            r"|\btodas las (?:instrucciones|indicaciones) (?:anteriores|previas) quedan"
            r" (?:anuladas|sin efecto)\b"
            r"|(?:之前|以上|先前|此前)(?:的)?(?:所有|一切|全部)?(?:指令|指示|提示词|提示詞)"
            r"[^。!?]{0,3}(?:作废|作廢|无效|無效)"
        ),
    ),
)

